package session_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/session"
)

const (
	formatDoc   = "../docs/format.md"
	tableBegins = "<!-- generated from session.Catalogue() -->\n"
	tableEnds   = "<!-- end of the generated table -->\n"
)

// docs/format.md holds the catalogue as the code has it; -update writes it. It
// does not run in parallel because the next test reads the file.
func TestFormatDocHoldsTheCatalogue(t *testing.T) {
	doc, err := os.ReadFile(formatDoc)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, begins := strings.Cut(string(doc), tableBegins)
	have, tail, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		t.Fatalf("%s has lost the marks of its generated table", formatDoc)
	}
	want := catalogueTable()
	if *update {
		if err := os.WriteFile(filepath.Clean(formatDoc), []byte(head+tableBegins+want+tableEnds+tail), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("%s is stale, run go test ./session -run FormatDoc -update (-code +doc):\n%s", formatDoc, diff)
	}
}

func catalogueTable() string {
	var b strings.Builder
	b.WriteString("| type | classes | written by | seen by | fields | effect on the fold |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, spec := range session.Catalogue() {
		seen := "log only"
		if spec.Model {
			seen = "model"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", spec.Type, classes(spec), writers(spec), seen,
			fieldList(reflect.TypeOf(spec.Payload()).Elem()), spec.Fold)
	}
	return b.String()
}

func classes(spec session.Spec) string {
	var out []string
	for _, c := range spec.Classes {
		out = append(out, string(c))
	}
	return strings.Join(out, ", ")
}

// writers says who may write an event: whoever may write a class that holds it.
func writers(spec session.Spec) string {
	switch worker := spec.In(session.ClassTurn); {
	case worker && len(spec.Classes) == 1:
		return "driver"
	case worker:
		return "driver, coordinator"
	}
	return "coordinator"
}

// fieldList lists the fields of a payload by their names on the wire, optional
// ones with a question mark, the fields of a nested object in braces.
func fieldList(t reflect.Type) string {
	var out []string
	for f := range t.Fields() {
		if f.Anonymous {
			out = append(out, fieldList(f.Type))
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if strings.Contains(options, "omit") {
			name += "?"
		}
		out = append(out, name+shape(f.Type))
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}

// shape shows lists and the objects in them.
func shape(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return shape(t.Elem())
	case reflect.Slice:
		return "[]" + shape(t.Elem())
	case reflect.Struct:
		if named := map[string]string{"Party": "", "Basis": ""}; t.PkgPath() != "" {
			if s, short := named[t.Name()]; short {
				return s
			}
		}
		return " {" + fieldList(t) + "}"
	default:
		return ""
	}
}

// The names of headers, classes and limits in docs/format.md are the code's.
func TestFormatDocNamesEveryPart(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(formatDoc)
	if err != nil {
		t.Fatal(err)
	}
	doc := string(raw)
	for _, want := range []string{
		session.HeaderFormat, session.HeaderSeq, session.HeaderCount, session.HeaderLinkName, session.HeaderEpoch,
		session.HeaderCreator, session.HeaderWriter, session.HeaderChildSeq, session.HeaderChildCount, session.HeaderChildLink,
		fmt.Sprintf("%d KiB", session.MaxRecord>>10), fmt.Sprintf("%d KiB", session.MaxPrompt>>10), fmt.Sprintf("%d bytes", session.MaxName),
		"entail/header/1", "entail/event/1", "entail/child/1", "entail/notice/1", "entail/seed/1",
		"`" + session.CodeToolNotStarted + "`", fmt.Sprintf("newest format version is %d", session.FormatVersion),
	} {
		if !strings.Contains(doc, want) {
			t.Errorf("%s does not name %s", formatDoc, want)
		}
	}
	for _, c := range []session.Class{session.ClassGenesis, session.ClassPolicy, session.ClassInbox, session.ClassTurn, session.ClassSeed} {
		if !strings.Contains(doc, "`"+string(c)+"`") {
			t.Errorf("%s does not name class %s", formatDoc, c)
		}
	}
	for f := range reflect.TypeFor[session.Header]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !strings.Contains(doc, "`"+name+"`") {
			t.Errorf("%s does not name the header's %s", formatDoc, name)
		}
	}
}
