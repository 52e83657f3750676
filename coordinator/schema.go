package coordinator

import (
	"context"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/invopop/jsonschema"

	"github.com/entail-fleet/entail/client"
)

// String names the role as requests are told of it.
func (r Role) String() string {
	switch r {
	case Viewer:
		return "viewer"
	case Operator:
		return "operator"
	case Admin:
		return "admin"
	}
	return "worker"
}

// schemas publishes what every method takes and gives, as JSON schemas, so that
// anything that speaks NATS can use the service.
func (c *Coordinator) schemas(context.Context, caller, client.Head) (*client.SchemasReply, *client.Position, error) {
	var reply client.SchemasReply
	for _, e := range c.endpoints() {
		request, err := schemaOf(e.request)
		if err != nil {
			return nil, nil, fmt.Errorf("schema of %s: %w", e.method, err)
		}
		result, err := schemaOf(e.reply)
		if err != nil {
			return nil, nil, fmt.Errorf("schema of %s: %w", e.method, err)
		}
		reply.Methods = append(reply.Methods, client.MethodSchema{
			Method: e.method, Subject: e.subject(), Role: e.role.String(), Request: request, Result: result,
		})
	}
	return &reply, nil, nil
}

// textSchema says of a type that is written as text that it is one.
func textSchema(t reflect.Type) *jsonschema.Schema {
	if t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return &jsonschema.Schema{Type: "string"}
	}
	return nil
}

func schemaOf(v any) (json.RawMessage, error) {
	r := jsonschema.Reflector{Anonymous: true, DoNotReference: true, Mapper: textSchema}
	return json.Marshal(r.Reflect(v))
}
