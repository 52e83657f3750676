package model_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/agent/model"
	"github.com/entail-fleet/entail/agent/model/modeltest"
)

func TestKeyIsNeverPrinted(t *testing.T) {
	t.Parallel()
	cfg := model.OpenAIConfig{BaseURL: "http://127.0.0.1:1/v1", Key: model.NewKey(testKey)}
	client, err := model.NewOpenAI(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("configured", slog.Any("key", cfg.Key))
	slog.New(slog.NewTextHandler(&log, nil)).Info("configured", slog.Any("key", cfg.Key), slog.String("cfg", fmt.Sprint(cfg)))
	marshalled, err := json.Marshal(map[string]any{"key": cfg.Key})
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{log.String(), string(marshalled), cfg.Key.String()}
	for _, v := range []any{cfg.Key, cfg, &cfg, client, []any{cfg}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			texts = append(texts, fmt.Sprintf(verb, v))
		}
	}
	for _, text := range texts {
		if strings.Contains(text, testKey) || strings.Contains(text, fmt.Sprintf("%x", testKey)) {
			t.Errorf("the key is in %s", text)
		}
	}
	if !strings.Contains(log.String(), "[key]") {
		t.Errorf("log %s does not show where the key is", log.String())
	}
}

func TestKeyIsTrimmedAndChecked(t *testing.T) {
	t.Parallel()
	srv := modeltest.NewServer(t, modeltest.Reply{Text: []string{"ok"}}.Step())
	srv.Key = testKey
	file := func(c *model.OpenAIConfig) { c.Key = model.NewKey(" " + testKey + "\r\n") }
	if _, err := newClient(t, srv.URL, file).Step(t.Context(), question(), nil); err != nil {
		t.Errorf("Step with a key from a file with a newline: %v", err)
	}
	for _, bad := range []string{testKey + "\nX-Evil: 1", testKey + "ü", testKey + " b"} {
		client := newClient(t, srv.URL, func(c *model.OpenAIConfig) { c.Key = model.NewKey(bad) })
		_, err := client.Step(t.Context(), question(), nil)
		if e := asError(t, err); e.Kind != model.KindRefused {
			t.Errorf("Step with the key %q: %v, want it refused", bad, err)
		}
	}
	if n := len(srv.Requests()); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

func TestKeyIsAskedForEachTime(t *testing.T) {
	t.Parallel()
	ok := modeltest.Reply{Text: []string{"ok"}}.Step()
	srv := modeltest.NewServer(t, ok, ok)
	n := 0
	client := newClient(t, srv.URL, func(c *model.OpenAIConfig) {
		c.Key = func() string { n++; return fmt.Sprint("key-", n) }
	})
	for range 2 {
		if _, err := client.Step(t.Context(), question(), nil); err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range srv.Requests() {
		if got, want := r.Header.Get("Authorization"), fmt.Sprint("Bearer key-", i+1); got != want {
			t.Errorf("request %d: Authorization = %q, want %q", i, got, want)
		}
	}
}

func TestNewOpenAIRefusesBaseURLs(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, url, want string }{
		{"empty", "", "want one like https://host/v1"},
		{"no scheme", "api.openai.com/v1", "want one like https://host/v1"},
		{"other scheme", "ftp://host/v1", "want one like https://host/v1"},
		{"no host", "https:///v1", "want one like https://host/v1"},
		{"password", "https://me:hunter2@host/v1", "leave it out"},
		{"broken with a password", "https://me:hunter2@host:port/v1", "is not a URL"},
		{"query", "https://host/v1?key=hunter2", "holds a query"},
		{"whole path", "https://host/v1/chat/completions", "leave out /chat/completions"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := model.NewOpenAI(model.OpenAIConfig{BaseURL: tt.url})
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("NewOpenAI(%q): %v, want %q and no password", tt.url, err, tt.want)
			}
		})
	}
}

func TestBaseURLNeedsNoSlash(t *testing.T) {
	t.Parallel()
	for _, tail := range []string{"", "/"} {
		srv := modeltest.NewServer(t, modeltest.Reply{Text: []string{"ok"}}.Step())
		if _, err := newClient(t, srv.URL+tail).Step(t.Context(), question(), nil); err != nil {
			t.Errorf("Step with a base URL that ends in %q: %v", tail, err)
		}
	}
}
