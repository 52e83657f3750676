package model_test

import (
	"strings"
	"testing"

	"github.com/entail-fleet/entail/agent/model"
)

func lookup(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := env[name]; return v, ok }
}

func TestResolve(t *testing.T) {
	t.Parallel()
	env := map[string]string{"OPENAI_API_KEY": "o-key\n", "DEEPSEEK_API_KEY": "d-key", "DEEPSEEK_BASE_URL": "", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}
	tests := []struct {
		name, model     string
		env             map[string]string
		wantURL, wantID string
		wantKey         string
	}{
		{"openai", "openai:gpt-5", map[string]string{"OPENAI_API_KEY": "k"}, "https://api.openai.com/v1", "gpt-5", "k"},
		{"openai elsewhere", "openai:gpt-5", env, "http://127.0.0.1:1/v1", "gpt-5", "o-key"},
		{"deepseek", "deepseek:deepseek-chat", env, "https://api.deepseek.com/v1", "deepseek-chat", "d-key"},
		{"deepseek elsewhere", "deepseek:x", map[string]string{"DEEPSEEK_API_KEY": "k", "DEEPSEEK_BASE_URL": "http://h/v1"}, "http://h/v1", "x", "k"},
		{"name with a colon", "openai:org/model:free", env, "http://127.0.0.1:1/v1", "org/model:free", "o-key"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg, id, err := model.Resolve(tt.model, lookup(tt.env))
			if err != nil {
				t.Fatal(err)
			}
			if cfg.BaseURL != tt.wantURL || id != tt.wantID || cfg.Key() != tt.wantKey {
				t.Errorf("Resolve(%q) = %q, %q, %q, want %q, %q, %q", tt.model, cfg.BaseURL, id, cfg.Key(), tt.wantURL, tt.wantID, tt.wantKey)
			}
		})
	}
}

func TestResolveRefuses(t *testing.T) {
	t.Parallel()
	env := map[string]string{"OPENAI_API_KEY": "o-key"}
	tests := []struct {
		name, model string
		env         map[string]string
		want        string
	}{
		{"no key", "openai:gpt-5", nil, "set OPENAI_API_KEY, or give --api-key-file"},
		{"blank key", "openai:gpt-5", map[string]string{"OPENAI_API_KEY": " \n"}, "set OPENAI_API_KEY"},
		{"key of another provider", "deepseek:x", env, "set DEEPSEEK_API_KEY, or give --api-key-file"},
		{"no provider", "gpt-5", env, "want openai:NAME, deepseek:NAME or scripted:FILE"},
		{"unknown provider", "claude:x", env, "want openai:NAME, deepseek:NAME or scripted:FILE"},
		{"empty", "", env, "want openai:NAME"},
		{"no name", "openai:", env, "want the endpoint's name"},
		{"space", "openai:a b", env, "want the endpoint's name"},
		{"control character", "openai:a\x1b", env, "want the endpoint's name"},
		{"long", "openai:" + strings.Repeat("x", 201), env, "want the endpoint's name"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := model.Resolve(tt.model, lookup(tt.env))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Resolve(%q): %v, want %q", tt.model, err, tt.want)
			}
		})
	}
}
