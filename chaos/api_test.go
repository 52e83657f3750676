package chaos_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/internal/node"
	"github.com/entail-fleet/entail/session"
)

// api is the deployment as its users reach it.
type api struct{ *client.Client }

// connect reaches a deployment by its token file.
func connect(t *testing.T, tokenFile string) api {
	t.Helper()
	token, err := broker.ReadTokenFile(tokenFile)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := node.ConnectChecked(token.Client, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	// Short, because a coordinator that is killed with a request never answers it.
	return api{client.New(nc, client.Config{Token: token.Token.Reveal(), Timeout: 3 * time.Second})}
}

func head() client.Head { return client.Head{Version: client.APIVersion} }

// ask repeats a request until a coordinator answers it: every one is idempotent
// by the ids in it.
func (a api) ask(ctx context.Context, method string, in, out any) error {
	for {
		err := a.Call(ctx, method, in, out)
		e, answered := errors.AsType[*client.Error](err)
		if err == nil || !answered || e.Code != client.CodeUnavailable {
			return err
		}
		if ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// Sessions implements verify.Source.
func (a api) Sessions(ctx context.Context) ([]session.ID, error) {
	var ids []session.ID
	in := client.ListRequest{Head: head()}
	for {
		var out client.ListReply
		if err := a.ask(ctx, client.MethodList, in, &out); err != nil || len(out.Sessions) == 0 {
			return ids, err
		}
		for _, s := range out.Sessions {
			ids = append(ids, s.Header.ID)
		}
		in.AfterID = ids[len(ids)-1]
	}
}

// Records implements verify.Source.
func (a api) Records(ctx context.Context, id session.ID, fn func(session.Raw) error) error {
	in := client.RecordsRequest{Head: head(), ID: id}
	for more := true; more; {
		var out client.RecordsReply
		if err := a.ask(ctx, client.MethodRecords, in, &out); err != nil {
			return err
		}
		for _, rec := range out.Records {
			in.From = rec.StreamSeq
			if err := fn(rec.Raw()); err != nil {
				return err
			}
		}
		more = out.More
	}
	return nil
}
