package client

import (
	"fmt"
	"strings"

	"github.com/entail-fleet/entail/session"
)

// ParsePlace reads [KIND:]LABEL, which names the workspaces of a label. The kind is
// shared unless it is given; an empty text is the zero of both.
func ParsePlace(text string) (session.WorkspaceKind, string, error) {
	if text == "" {
		return "", "", nil
	}
	kind, label, ok := strings.Cut(text, ":")
	if !ok {
		kind, label = string(session.WorkspaceShared), text
	}
	k := session.WorkspaceKind(kind)
	if err := CheckPlace(k, label); err != nil {
		return "", "", fmt.Errorf("%.80q: %w", text, err)
	}
	return k, label, nil
}

// CheckPlace holds a workspace's kind and label to their form.
func CheckPlace(kind session.WorkspaceKind, label string) error {
	if kind != session.WorkspaceShared && kind != session.WorkspaceHost {
		return fmt.Errorf("unknown kind %.80q of a workspace (available: %s, %s)", string(kind), session.WorkspaceShared, session.WorkspaceHost)
	}
	if err := session.CheckLabel(label); err != nil || strings.Contains(label, "=") {
		return fmt.Errorf("workspace %.80q: give a word of 1 to 64 lower-case letters, digits and -_./", label)
	}
	return nil
}

// PlaceText writes a kind and a label as ParsePlace reads them.
func PlaceText(kind session.WorkspaceKind, label string) string {
	if kind == session.WorkspaceShared {
		return label
	}
	return string(kind) + ":" + label
}
