package bench

import (
	"testing"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
)

// BenchmarkService is a delegation through the service, for profiles.
func BenchmarkService(b *testing.B) {
	ctx := b.Context()
	g, log := openFor(b)
	c, err := g.coordinate(ctx)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := c.stop(); err != nil {
			b.Error(err)
		}
	}()
	worker, err := g.connect(broker.Worker, "w1")
	if err != nil {
		b.Fatal(err)
	}
	defer worker.Close()
	deployment, err := currentSettings(ctx, log)
	if err != nil {
		b.Fatal(err)
	}
	s, err := newShelf(ctx, log, b.N)
	if err != nil {
		b.Fatal(err)
	}
	if err := c.settle(ctx, log); err != nil {
		b.Fatal(err)
	}
	api := client.New(worker, client.Config{Worker: "w1"})
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if err := s.next().ask(ctx, api, deployment); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRawService is the empty service that a delegation is measured against.
func BenchmarkRawService(b *testing.B) {
	ctx := b.Context()
	g, log := openFor(b)
	c, err := g.coordinate(ctx)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := c.stop(); err != nil {
			b.Error(err)
		}
	}()
	worker, err := g.connect(broker.Worker, "w1")
	if err != nil {
		b.Fatal(err)
	}
	defer worker.Close()
	shelf, err := newRawShelf(ctx, log, b.N)
	if err != nil {
		b.Fatal(err)
	}
	empty := &rawService{conn: g.conn}
	empty.shelf.Store(shelf)
	subject := client.SubjectWorker + "w1.raw"
	svc, err := empty.serve(ctx, subject)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = svc.Stop() }()
	if err := c.settle(ctx, log); err != nil {
		b.Fatal(err)
	}
	body := make([]byte, 1024)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if err := askRaw(worker, subject, body); err != nil {
			b.Fatal(err)
		}
	}
}
