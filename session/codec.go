package session

import (
	"fmt"
	"reflect"
	"strings"
)

// codec reads and writes the one form of the values of a type: what encoding/json
// writes without escaping HTML, with no list as the empty list and bytes that are
// no UTF-8 as U+FFFD. It reads that form and no other, so that no two readers can
// understand a line differently.
//
// A codec is made once for a type. Write puts v's form behind what w holds. Read
// sets v, which is addressable and zero.
type codec struct {
	write func(w *writer, v reflect.Value)
	read  func(r *reader, v reflect.Value) error
}

// encode puts the form of what p points at behind b. Same reports that reading it
// gives back a value that is equal in every field.
func (c codec) encode(b []byte, p any) (form []byte, same bool) {
	w := writer{b: b}
	c.write(&w, reflect.ValueOf(p).Elem())
	return w.b, !w.altered
}

// decode reads a form, up to its end, into what p points at, which is zero.
func (c codec) decode(r *reader, p any) error { return c.read(r, reflect.ValueOf(p).Elem()) }

// codecOf makes the codec of a type of the format. A type that has none is a
// mistake in the catalogue, and every program would end on it at its start.
func codecOf(t reflect.Type) codec {
	if t == reflect.TypeFor[Link]() {
		return codec{writeLink, readLink}
	}
	switch t.Kind() { //nolint:exhaustive // the format has no others
	case reflect.Struct:
		return membersOf(t).codec()
	case reflect.Pointer:
		return pointerCodec(t)
	case reflect.Slice:
		return listCodec(t)
	case reflect.String:
		return codec{writeText, readText}
	case reflect.Bool:
		return codec{writeBool, readBool}
	case reflect.Int, reflect.Int64:
		return codec{writeInt, readInt}
	case reflect.Uint64:
		return codec{writeUint, readUint}
	}
	panic(fmt.Sprintf("session: type %s has no form in a log", t))
}

// members are the fields of a struct, in their order on the wire.
type members []member

// member is a field, or an embedded struct, whose members stand in its place.
type member struct {
	codec
	at       int
	key      string // with quotes and colon
	optional bool   // left out when empty
	embedded members
}

func membersOf(t reflect.Type) members {
	ms := make(members, t.NumField())
	for i := range ms {
		f := t.Field(i)
		if ms[i].at = i; f.Anonymous {
			ms[i].embedded = membersOf(f.Type)
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		ms[i].codec, ms[i].key, ms[i].optional = codecOf(f.Type), `"`+name+`":`, options == "omitempty"
	}
	return ms
}

func (ms members) codec() codec {
	return codec{
		write: func(w *writer, v reflect.Value) {
			w.b = append(w.b, '{')
			ms.write(w, v)
			w.b = append(w.b, '}')
		},
		read: func(r *reader, v reflect.Value) error {
			if err := r.want("{"); err != nil {
				return err
			}
			if err := ms.read(r, v); err != nil {
				return err
			}
			return r.want("}")
		},
	}
}

func (ms members) write(w *writer, v reflect.Value) {
	for i := range ms {
		m, x := &ms[i], v.Field(ms[i].at)
		if m.embedded != nil {
			m.embedded.write(w, x)
			continue
		}
		if m.optional && empty(x) {
			w.altered = w.altered || !x.IsZero() // a list without elements comes back as none
			continue
		}
		if w.b[len(w.b)-1] != '{' {
			w.b = append(w.b, ',')
		}
		w.b = append(w.b, m.key...)
		m.write(w, x)
	}
}

func (ms members) read(r *reader, v reflect.Value) error {
	for i := range ms {
		m, x := &ms[i], v.Field(ms[i].at)
		if m.embedded != nil {
			if err := m.embedded.read(r, x); err != nil {
				return err
			}
			continue
		}
		if !r.key(m.key) {
			if m.optional {
				continue
			}
			return r.fail("want " + m.key)
		}
		if err := m.read(r, x); err != nil {
			return err
		}
		if m.optional && empty(x) {
			return r.fail(m.key + " is there and empty")
		}
	}
	return nil
}

// empty is what omitempty means.
func empty(v reflect.Value) bool {
	if v.Kind() == reflect.Slice {
		return v.Len() == 0
	}
	return v.Kind() != reflect.Struct && v.Kind() != reflect.Array && v.IsZero()
}

// pointerCodec is of an optional value: a nil one is left out by its member.
func pointerCodec(t reflect.Type) codec {
	to := codecOf(t.Elem())
	return codec{
		write: func(w *writer, v reflect.Value) { to.write(w, v.Elem()) },
		read: func(r *reader, v reflect.Value) error {
			v.Set(reflect.New(t.Elem()))
			return to.read(r, v.Elem())
		},
	}
}

func listCodec(t reflect.Type) codec {
	of := codecOf(t.Elem())
	return codec{
		write: func(w *writer, v reflect.Value) {
			w.altered = w.altered || v.IsNil() // it comes back as one without elements
			w.b = append(w.b, '[')
			for i := range v.Len() {
				if i > 0 {
					w.b = append(w.b, ',')
				}
				of.write(w, v.Index(i))
			}
			w.b = append(w.b, ']')
		},
		read: func(r *reader, v reflect.Value) error {
			if err := r.want("["); err != nil {
				return err
			}
			v.Set(reflect.MakeSlice(t, 0, 0))
			for !r.take("]") {
				if v.Len() > 0 {
					if err := r.want(","); err != nil {
						return err
					}
				}
				v.Grow(1)
				v.SetLen(v.Len() + 1)
				if err := of.read(r, v.Index(v.Len()-1)); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
