package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/entail-fleet/entail/client"
)

// printer writes what a command has to say: text for people or JSON lines for
// programs. Colour is for terminals, and not where NO_COLOR is set.
type printer struct {
	out, err io.Writer
	json     bool
	colour   bool
	live     bool // a terminal, where a line can be rewritten
}

func newPrinter(a *app, asJSON bool) *printer {
	p := &printer{out: a.out, err: a.err, json: asJSON}
	noColour, _ := a.lookup("NO_COLOR")
	term, _ := a.lookup("TERM")
	p.live = !asJSON && isTerminal(a.out) && term != "dumb"
	p.colour = p.live && noColour == ""
	return p
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// value writes v as one JSON line, or calls text.
func (p *printer) value(v any, text func()) error {
	if !p.json {
		text()
		return nil
	}
	enc := json.NewEncoder(p.out)
	enc.SetEscapeHTML(false) // event lines are shown as they are stored
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// line writes one line for people. It is not part of the answer.
func (p *printer) line(format string, args ...any) {
	if !p.json {
		fmt.Fprintf(p.out, format+"\n", args...)
	}
}

// warn writes one line beside the answer.
func (p *printer) warn(format string, args ...any) {
	if p.json {
		_ = p.value(map[string]string{"warning": fmt.Sprintf(format, args...)}, nil)
		return
	}
	fmt.Fprintf(p.err, p.paint(yellow, "warning: ")+format+"\n", args...)
}

// failure writes why the command failed.
func (p *printer) failure(e *exitError) {
	type body struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	text := client.Shorten(e.Error())
	if p.json {
		_ = p.value(map[string]body{"error": {e.code, text}}, nil)
		return
	}
	fmt.Fprintf(p.err, "%s%s\n", p.paint(red, "entail: "), clean(text))
}

// The colours, as a terminal knows them.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	blue   = "34"
	grey   = "90"
)

func (p *printer) paint(colour, s string) string {
	if !p.colour || s == "" {
		return s
	}
	return "\x1b[" + colour + "m" + s + "\x1b[0m"
}
