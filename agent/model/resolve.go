package model

import (
	"fmt"
	"strings"
	"unicode"
)

// maxModelName bounds the name of a model, which stands in logs and lists.
const maxModelName = 200

// provider is a kind of endpoint that a model's name can begin with.
type provider struct{ keyName, urlName, baseURL string }

func providerNamed(name string) (provider, bool) {
	switch name {
	case "openai":
		return provider{"OPENAI_API_KEY", "OPENAI_BASE_URL", "https://api.openai.com/v1"}, true
	case "deepseek":
		return provider{"DEEPSEEK_API_KEY", "DEEPSEEK_BASE_URL", "https://api.deepseek.com/v1"}, true
	default:
		return provider{}, false
	}
}

// Resolve turns a name like "openai:NAME" or "deepseek:NAME" into a
// configuration and the endpoint's name of the model. It asks lookup for
// OPENAI_API_KEY and OPENAI_BASE_URL, or the same with DEEPSEEK; an empty value
// counts as none. A caller with a key file or a base URL of its own answers
// with these. A provider's key is never used for another provider.
func Resolve(name string, lookup func(string) (string, bool)) (OpenAIConfig, string, error) {
	prefix, model, found := strings.Cut(name, ":")
	p, known := providerNamed(prefix)
	if !found || !known {
		return OpenAIConfig{}, "", fmt.Errorf(
			"unknown model %q: want openai:NAME, deepseek:NAME or scripted:FILE", name)
	}
	if model == "" || len(model) > maxModelName || strings.ContainsFunc(model, notInModelName) {
		return OpenAIConfig{}, "", fmt.Errorf(
			"bad model %q: after %s: want the endpoint's name of a model, 1 to %d bytes without spaces", name, prefix, maxModelName)
	}
	cfg := OpenAIConfig{BaseURL: p.baseURL}
	if base, ok := lookup(p.urlName); ok && strings.TrimSpace(base) != "" {
		cfg.BaseURL = strings.TrimSpace(base)
	}
	key, ok := lookup(p.keyName)
	if !ok || strings.TrimSpace(key) == "" {
		return OpenAIConfig{}, "", fmt.Errorf(
			"no key for model %q: set %s, or give --api-key-file FILE", name, p.keyName)
	}
	cfg.Key = NewKey(key)
	return cfg, model, nil
}

func notInModelName(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }
