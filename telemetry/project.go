package telemetry

import (
	"fmt"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/entail-fleet/entail/session"
)

// Span is a finished span and the worker it is of.
type Span struct {
	Worker string
	Span   *tracepb.Span
}

// Start finds the event that an end event names as its start. It returns nil for
// one below firstLiveSeq.
type Start func(session.Seq) (session.Event, error)

// ProjectBirth makes a session's span: an anchor of one microsecond at its
// creation, final at once, that everything else of the session hangs below. Call
// is the parent's delegating call, empty for a session that nobody delegated.
func ProjectBirth(h session.Header, call session.CallID) Span {
	s := newSpan(h, SessionSpan(h.ID), "session "+name(h), h.CreatedAt, h.CreatedAt)
	if h.IsChild() {
		s.ParentSpanId = CallSpan(h.ParentSession, call)
	} else if _, parent, ok := caller(h); ok {
		s.ParentSpanId = parent
	}
	s.Attributes = append(s.Attributes,
		text("entail.session.origin", string(h.Origin)),
		number("entail.session.depth", int64(h.DelegationDepth)),
		number("entail.session.first_live_seq", int64(h.FirstLiveSeq)), //nolint:gosec // far below the limit
	)
	return Span{Worker: "coordinator", Span: s}
}

// Project makes the span that an event ends, if it ends one. Events below
// firstLiveSeq make none.
func Project(h session.Header, e session.Event, start Start) (*Span, error) {
	if e.Seq < h.FirstLiveSeq {
		return nil, nil //nolint:nilnil // most events make no span
	}
	switch p := e.Payload.(type) {
	case *session.TurnEnd:
		s := newSpan(h, TurnSpan(h.ID, p.Turn), "invoke_agent "+name(h), p.StartTime, e.Time)
		s.ParentSpanId = SessionSpan(h.ID)
		s.Attributes = append(s.Attributes,
			text("gen_ai.operation.name", "invoke_agent"), number("entail.turn", int64(p.Turn)),
			text("entail.turn.end", string(p.Reason.Kind)), number("entail.attempt", int64(p.Attempt)),
		)
		fail(s, p.Reason.Kind == session.EndError, string(p.Reason.Kind))
		return &Span{Worker: p.Worker, Span: s}, nil
	case *session.ToolResult:
		began, err := start(p.StartSeq)
		if err != nil {
			return nil, fmt.Errorf("project result of call %s: %w", p.CallID, err)
		}
		tool := "unknown"
		if call, ok := began.Payload.(*session.ToolCall); ok {
			tool = call.Name
		}
		s := newSpan(h, CallSpan(h.ID, p.CallID), "execute_tool "+tool, p.StartTime, e.Time)
		s.ParentSpanId = TurnSpan(h.ID, p.Turn)
		s.Attributes = append(s.Attributes,
			text("gen_ai.operation.name", "execute_tool"), text("gen_ai.tool.name", tool),
			text("gen_ai.tool.call.id", string(p.CallID)), number("entail.attempt", int64(p.Attempt)),
		)
		if p.Denied {
			s.Attributes = append(s.Attributes, flag("entail.denied"))
		}
		fail(s, p.IsError, p.Code)
		return &Span{Worker: p.Worker, Span: s}, nil
	}
	return nil, nil //nolint:nilnil // most events make no span
}

// newSpan starts a span of a session. Its end is at least a microsecond after
// its start: backends rewrite spans of no length.
func newSpan(h session.Header, id []byte, title string, fromMs, toMs int64) *tracepb.Span {
	from := time.UnixMilli(fromMs)
	to := time.UnixMilli(toMs)
	if !to.After(from) {
		to = from.Add(time.Microsecond)
	}
	const sampled = 0x101 // sampled, and the parent is known not to be remote
	return &tracepb.Span{
		TraceId: TraceID(h), SpanId: id, Name: title, Kind: tracepb.Span_SPAN_KIND_INTERNAL, Flags: sampled,
		StartTimeUnixNano: nanos(from), EndTimeUnixNano: nanos(to),
		Attributes: []*commonpb.KeyValue{
			text("gen_ai.conversation.id", string(h.ID)), text("entail.session.root", string(h.Root)),
		},
	}
}

func nanos(t time.Time) uint64 { return uint64(max(t.UnixNano(), 0)) }

// name is what people call the session; ids are attributes.
func name(h session.Header) string {
	if h.Label == "" {
		return "root"
	}
	return h.Label
}

func fail(s *tracepb.Span, failed bool, kind string) {
	if !failed {
		return
	}
	if kind == "" {
		kind = "error"
	}
	s.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR}
	s.Attributes = append(s.Attributes, text("error.type", kind))
}

func text(key, value string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
}

func number(key string, value int64) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: value}}}
}

func flag(key string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: true}}}
}
