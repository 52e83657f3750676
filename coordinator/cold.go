package coordinator

import (
	"context"
	"errors"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// maxCold bounds the records of one cold reply, so that it fits a message once
// JSON has written them as text.
const maxCold = 640 << 10

// cold reads a session's raw records for a worker that does not hold it. They
// need not be new or true: the worker folds them itself, and what follows them in
// the stream must link to them. A worker also asks what is held after a tail that
// it has read, before it appends there: so a partition that is stopped answers with
// its loss, and so does a log that is not whole in the stream.
func (c *Coordinator) cold(ctx context.Context, _ caller, in client.ColdRequest) (*client.ColdReply, *client.Position, error) {
	if err := c.known(in.ID); err != nil {
		return nil, nil, err
	}
	if err := c.cfg.Store.WaitFor(ctx, in.ID.Partition(), 0); err != nil {
		return nil, nil, err
	}
	if in.After > 0 {
		// A session that cannot be viewed stops its reader too.
		if v, err := c.cfg.Store.View(ctx, in.ID, 0); err == nil {
			if err := c.cfg.Log.Compare(ctx, in.ID, v); err != nil {
				return nil, nil, err
			}
		}
	}
	var reply client.ColdReply
	last := in.After
	err := c.cfg.Store.RecordsAfter(in.ID, in.After, func(raw session.Raw) error {
		packed := client.Pack(reply.Records, raw)
		if len(reply.Records) > 0 && len(packed) > maxCold {
			reply.More = true
			return errDone
		}
		reply.Records, last = packed, raw.StreamSeq
		return nil
	})
	if err != nil && !errors.Is(err, errDone) {
		return nil, nil, err
	}
	return &reply, at(in.ID, last), nil
}
