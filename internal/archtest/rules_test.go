package archtest_test

import "path"

// module is the path all packages of the project stand under.
const module = "github.com/entail-fleet/entail"

// A rule says what the non-test files of one package may import beside the
// standard library and internal/.
type rule struct {
	project    []string // packages of the project, relative to the module
	thirdParty []string // import path prefixes
	all        bool     // everything that no owner holds
}

// Import path prefixes that several rules name.
const (
	natsGo  = "github.com/nats-io/nats.go"
	nkeys   = "github.com/nats-io/nkeys"
	jwt     = "github.com/nats-io/jwt/v2"
	otelAPI = "go.opentelemetry.io/otel"
	xsync   = "golang.org/x/sync"
	xsys    = "golang.org/x/sys"
	ulid    = "github.com/oklog/ulid/v2"
	jsonV2  = "github.com/go-json-experiment/json"
	yamlV3  = "go.yaml.in/yaml/v3"
	shell   = "mvdan.cc/sh/v3"
)

// rules is the import table, from the centre outwards. A package that is not
// in it may not exist. "cmd" and "internal" stand for all packages under them.
var rules = map[string]rule{
	"session": {},
	"policy":  {project: []string{"session"}},
	"sandbox": {project: []string{"session", "policy"}, thirdParty: []string{xsys, xsync}},
	// A program of its own, which package sandbox embeds.
	"sandbox/launcher": {thirdParty: []string{xsys}},
	"review":           {project: []string{"session", "policy"}, thirdParty: []string{shell}},
	"stream":           {project: []string{"session"}, thirdParty: []string{natsGo, "github.com/synadia-io/orbit.go/jetstreamext", xsync}},
	"sessionstore":     {project: []string{"session"}, thirdParty: []string{"github.com/cockroachdb/pebble/v2", xsync}},
	"delegation":       {project: []string{"session", "policy"}, thirdParty: []string{jsonV2}},
	"agent":            {project: []string{"session", "policy", "sandbox", "agent/model", "stream", "client"}, thirdParty: []string{xsync, jsonV2, shell}},
	"agent/model":      {project: []string{"session"}, thirdParty: []string{"github.com/openai/openai-go/v3", yamlV3}},
	"coordinator":      {project: []string{"session", "policy", "stream", "sessionstore", "delegation", "client"}, thirdParty: []string{natsGo, ulid, xsync, jsonV2, "github.com/invopop/jsonschema"}},
	"client":           {project: []string{"session", "policy"}, thirdParty: []string{natsGo, ulid, jsonV2}},
	"verify":           {project: []string{"session"}},
	"telemetry": {project: []string{"session"}, thirdParty: []string{
		otelAPI, "go.opentelemetry.io/proto/otlp", "google.golang.org/protobuf", "github.com/prometheus/client_golang", xsync,
	}},
	"chaos":    {project: []string{"session", "verify"}, thirdParty: []string{xsync}},
	"console":  {project: []string{"session", "client"}},
	"broker":   {project: []string{"session"}, thirdParty: []string{natsGo, nkeys, jwt, "github.com/nats-io/nats-server/v2"}},
	"cmd":      {all: true},
	"internal": {thirdParty: []string{xsys}},
	// What the commands wire together; only they import it.
	"internal/node": {all: true},
	// Measures the rest against what it stands on.
	"internal/bench": {all: true},
	// The order that raced operations must have.
	"internal/races": {project: []string{"session"}, thirdParty: []string{"github.com/anishathalye/porcupine"}},
	// A broker for tests; only tests may import it, as all support named so.
	"internal/natstest": {project: []string{"broker"}, thirdParty: []string{natsGo, "github.com/nats-io/nats-server/v2"}},
}

// owners says who may speak to a library that few may. It binds cmd too: whoever
// replaces such a library changes one directory. The longest prefix counts.
var owners = map[string][]string{
	module + "/internal/node":             {"cmd", "internal/bench"},
	natsGo:                                {"stream", "coordinator", "client", "broker", "internal/natstest", "internal/node", "internal/bench", "cmd"},
	natsGo + "/jetstream":                 {"stream", "internal/bench"},
	natsGo + "/micro":                     {"coordinator", "client", "internal/bench"},
	"github.com/synadia-io/orbit.go":      {"stream"},
	"github.com/nats-io/nats-server/v2":   {"broker", "internal/natstest"},
	"github.com/cockroachdb/pebble/v2":    {"sessionstore"},
	"github.com/openai/openai-go/v3":      {"agent/model"},
	"github.com/anishathalye/porcupine":   {"internal/races"},
	"github.com/prometheus/client_golang": {"telemetry"},
	otelAPI + "/sdk":                      {"telemetry"},
	otelAPI + "/exporters":                {"telemetry"},
	"go.opentelemetry.io/proto/otlp":      {"telemetry"},
}

// badNames are package names that say nothing about what is inside.
var badNames = []string{"util", "utils", "common", "types", "models", "pkg", "helpers", "misc", "base"}

// ruleName gives the entry of the table that holds for a directory: itself,
// its parent for a conformance suite such as session/sessiontest, or the
// subtree it stands in.
func ruleName(dir string) (name string, ok bool) {
	if _, ok := rules[dir]; ok {
		return dir, true
	}
	parent := path.Dir(dir)
	if _, ok := rules[parent]; ok && path.Base(dir) == path.Base(parent)+"test" {
		return parent, true
	}
	for _, top := range []string{"cmd", "internal"} {
		if under(dir, top) {
			return top, true
		}
	}
	return "", false
}
