package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// errRejected is an answer that sending the same spans again cannot change.
var errRejected = errors.New("the endpoint rejected the spans")

// endpoint is an OTLP trace endpoint over HTTP, in protobuf.
type endpoint struct {
	url  string
	http *http.Client
}

// send posts spans and returns how many the endpoint says it rejected. An error
// that is not errRejected may go away.
func (p endpoint) send(ctx context.Context, spans []Span) (rejected int64, err error) {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(request(spans))
	if err != nil {
		return 0, fmt.Errorf("encode spans: %w", err)
	}
	const longest = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("post spans: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	resp, err := p.http.Do(req)
	if err != nil {
		return 0, fmt.Errorf("post spans: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	switch {
	case err != nil:
		return 0, fmt.Errorf("read the endpoint's answer: %w", err)
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500:
		return 0, fmt.Errorf("post spans: %s", resp.Status)
	case resp.StatusCode/100 != 2:
		return 0, fmt.Errorf("post spans: %s: %w", resp.Status, errRejected)
	}
	return partial(answer), nil
}

// request groups spans by the worker they are of. An export request is TracesData
// on the wire.
func request(spans []Span) *tracepb.TracesData {
	const scope = "github.com/entail-fleet/entail/telemetry"
	var data tracepb.TracesData
	at := map[string]*tracepb.ScopeSpans{}
	for _, s := range spans {
		group, ok := at[s.Worker]
		if !ok {
			group = &tracepb.ScopeSpans{Scope: &commonpb.InstrumentationScope{Name: scope, Version: "1"}}
			at[s.Worker] = group
			data.ResourceSpans = append(data.ResourceSpans, &tracepb.ResourceSpans{
				Resource: &resourcepb.Resource{Attributes: []*commonpb.KeyValue{
					text("service.name", "entail"), text("service.instance.id", s.Worker),
				}},
				ScopeSpans: []*tracepb.ScopeSpans{group},
			})
		}
		group.Spans = append(group.Spans, s.Span)
	}
	return &data
}

// partial reads rejected_spans of an ExportTraceServiceResponse's
// partial_success: field 1 of field 1.
func partial(answer []byte) int64 {
	inner, ok := field(answer, 1, protowire.BytesType)
	if !ok {
		return 0
	}
	sub, n := protowire.ConsumeBytes(inner)
	if n < 0 {
		return 0
	}
	value, ok := field(sub, 1, protowire.VarintType)
	if !ok {
		return 0
	}
	rejected, n := protowire.ConsumeVarint(value)
	if n < 0 {
		return 0
	}
	return int64(rejected) //nolint:gosec // a count of spans of one request
}

// field finds a field's value in a message.
func field(msg []byte, want protowire.Number, kind protowire.Type) ([]byte, bool) {
	for len(msg) > 0 {
		num, typ, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return nil, false
		}
		msg = msg[n:]
		if num == want && typ == kind {
			return msg, true
		}
		n = protowire.ConsumeFieldValue(num, typ, msg)
		if n < 0 {
			return nil, false
		}
		msg = msg[n:]
	}
	return nil, false
}
