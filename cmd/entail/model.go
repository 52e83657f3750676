package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/agent/model"
	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
)

// scripted is how the name of a scripted model begins.
const scripted = "scripted:"

// maxKeyFile bounds a key file. A key is far shorter.
const maxKeyFile = 64 << 10

// endpointFlags say which model endpoint the workers of this command ask.
type endpointFlags struct {
	model      string
	baseURL    string
	apiKeyFile string
}

func (f *endpointFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.baseURL, "base-url", "", "address of the model's endpoint for the workers that this command starts")
	flags.StringVar(&f.apiKeyFile, "api-key-file", "", "file with the endpoint's key for the workers that this command starts")
}

// variables are the names that model.Resolve asks for, by provider.
func variables(provider string) (key, url string) {
	p := strings.ToUpper(provider)
	return p + "_API_KEY", p + "_BASE_URL"
}

// endpoints collects what workers need to reach model endpoints: the keys and
// addresses of the environment and, for the provider of the model that was named,
// those of the flags.
func (a *app) endpoints(f endpointFlags) (map[string]broker.Secret, error) {
	out := map[string]broker.Secret{}
	for _, provider := range []string{"openai", "deepseek"} {
		key, url := variables(provider)
		for _, name := range []string{key, url} {
			if v, ok := a.lookup(name); ok && strings.TrimSpace(v) != "" {
				out[name] = broker.NewSecret(v)
			}
		}
	}
	provider, _, _ := strings.Cut(f.model, ":")
	if provider != "deepseek" {
		provider = "openai"
	}
	key, url := variables(provider)
	if f.baseURL != "" {
		if err := (model.OpenAIConfig{BaseURL: f.baseURL}).Validate(); err != nil {
			return nil, usagef("--base-url: %w", err)
		}
		out[url] = broker.NewSecret(f.baseURL)
	}
	if f.apiKeyFile != "" {
		text, err := readKey(f.apiKeyFile)
		if err != nil {
			return nil, usagef("--api-key-file: %w; name the file that holds the key alone", err)
		}
		out[key] = broker.NewSecret(text)
	}
	return out, nil
}

// readKey reads a key. Its errors never quote the file's text.
func readKey(path string) (string, error) {
	text, err := readFile(path, maxKeyFile)
	if err != nil {
		return "", err
	}
	key := strings.TrimSpace(string(text))
	if key == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return key, nil
}

// readFile reads a plain file of at most so many bytes.
func readFile(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no plain file: name one", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s is longer than %d bytes", path, most)
	}
	return text, err
}

// chosenModel is what --model came to: what travels in the request, and the script if there is one.
type chosenModel struct {
	wire   client.Model
	script *model.Script
}

// chooseModel reads --model. A script is read and checked here, so that what is
// wrong in it is told with line and column before anything is started.
func chooseModel(name string) (chosenModel, error) {
	if name == "" {
		return chosenModel{}, usagef("no model: name one with --model scripted:FILE, openai:NAME or deepseek:NAME")
	}
	if path, ok := strings.CutPrefix(name, scripted); ok {
		text, err := readFile(path, model.MaxScriptBytes)
		if err != nil {
			return chosenModel{}, usagef("--model: script: %w; name its file as scripted:FILE", err)
		}
		s, err := model.ParseScript(path, text, agent.Tools()...)
		if err != nil {
			return chosenModel{}, usagef("--model: %w", err)
		}
		return chosenModel{client.Model{Provider: "scripted", Model: "script", Script: string(text)}, s}, nil
	}
	// Whether there is a key is the business of whoever runs the workers.
	anyKey := func(name string) (string, bool) { return "key", strings.HasSuffix(name, "_API_KEY") }
	_, id, err := model.Resolve(name, anyKey)
	if err != nil {
		return chosenModel{}, usagef("--model: %w", err)
	}
	provider, _, _ := strings.Cut(name, ":")
	return chosenModel{wire: client.Model{Provider: provider, Model: id}}, nil
}

// checkOffer refuses a model that the workers of `entail up` could not offer.
func checkOffer(name string, endpoints map[string]broker.Secret) error {
	if strings.HasPrefix(name, scripted) {
		return usagef("--model %s: scripted models are always offered: name openai:NAME or deepseek:NAME, or leave it out", name)
	}
	return checkKey(name, endpoints)
}

// checkKey reports a model that the workers of this command could not ask.
func checkKey(name string, endpoints map[string]broker.Secret) error {
	if strings.HasPrefix(name, scripted) {
		return nil
	}
	_, _, err := model.Resolve(name, func(v string) (string, bool) {
		s, ok := endpoints[v]
		return s.Reveal(), ok
	})
	if err != nil {
		return usagef("--model: %w", err)
	}
	return nil
}
