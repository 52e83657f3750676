package coordinator

import (
	"context"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// endpoints lists every method of the service. It is the one place that says
// which role a method needs.
func (c *Coordinator) endpoints() []endpoint {
	return []endpoint{
		{method: client.MethodInfo, role: Viewer, handle: on(sessionHead, c.info)},
		{method: client.MethodCreate, role: Operator, handle: on(func(r *client.CreateRequest) client.Head { return r.Head }, c.create)},
		{method: client.MethodFork, role: Operator, handle: on(func(r *client.ForkRequest) client.Head { return r.Head }, c.fork)},
		{method: client.MethodList, role: Viewer, handle: on(func(r *client.ListRequest) client.Head { return r.Head }, c.list)},
		{method: client.MethodShow, role: Viewer, handle: on(sessionHead, c.show)},
		{method: client.MethodTree, role: Viewer, handle: on(sessionHead, c.tree)},
		{method: client.MethodEvents, role: Viewer, handle: on(func(r *client.EventsRequest) client.Head { return r.Head }, c.events)},
		{method: client.MethodRecords, role: Viewer, handle: on(func(r *client.RecordsRequest) client.Head { return r.Head }, c.records)},
		{method: client.MethodSend, role: Operator, handle: on(func(r *client.SendRequest) client.Head { return r.Head }, c.send)},
		{method: client.MethodInterrupt, role: Operator, handle: on(stopHead, c.interrupt)},
		{method: client.MethodCancel, role: Operator, handle: on(stopHead, c.cancel)},
		{method: client.MethodRelease, role: Admin, handle: on(func(r *client.ReleaseRequest) client.Head { return r.Head }, c.release)},
		{method: client.MethodPolicyGet, role: Viewer, handle: on(sessionHead, c.policyGet)},
		{method: client.MethodPolicySet, role: Operator, handle: on(func(r *client.PolicySetRequest) client.Head { return r.Head }, c.policySet)},
		{method: client.MethodPolicyExplain, role: Viewer, handle: on(sessionHead, c.policyExplain)},
		{method: client.MethodCallExplain, role: Viewer, handle: on(func(r *client.CallRequest) client.Head { return r.Head }, c.callExplain)},
		{method: client.MethodConfigGet, role: Viewer, handle: on(sessionHead, c.configGet)},
		{method: client.MethodConfigSet, role: Admin, handle: on(func(r *client.ConfigSetRequest) client.Head { return r.Head }, c.configSet)},
		{method: client.MethodConfigHistory, role: Viewer, handle: on(sessionHead, c.configHistory)},

		{method: client.MethodDelegate, worker: true, handle: on(func(r *client.DelegateRequest) client.Head { return r.Head }, c.delegate)},
		{method: client.MethodSettled, worker: true, handle: on(func(r *client.SettledRequest) client.Head { return r.Head }, c.settled)},
		{method: client.MethodEmpty, worker: true, handle: on(func(r *client.EmptyRequest) client.Head { return r.Head }, c.empty)},
		{method: client.MethodCold, worker: true, handle: on(func(r *client.RecordsRequest) client.Head { return r.Head }, c.records)},
	}
}

func sessionHead(r *client.SessionRequest) client.Head { return r.Head }
func stopHead(r *client.StopRequest) client.Head       { return r.Head }

// at is the position of a record in its session's partition.
func at(id session.ID, streamSeq uint64) *client.Position {
	return &client.Position{Partition: id.Partition(), Sequence: streamSeq}
}

// known parses an id that a client sent.
func (c *Coordinator) known(id session.ID) error {
	if _, err := session.ParseID(string(id)); err != nil {
		return err
	}
	if id.Partition() >= c.cfg.Partitions {
		return &client.Error{Code: client.CodeNotFound, Message: "no such session: its partition is not one of this deployment", Session: id}
	}
	return nil
}

func (c *Coordinator) info(context.Context, caller, client.SessionRequest) (any, *client.Position, error) {
	d := c.settings()
	return client.InfoReply{
		Version: c.cfg.Version, Partitions: c.cfg.Partitions, Format: session.FormatVersion,
		Revision: d.Revision, Settings: d.Settings, Durability: c.cfg.Durability, Models: c.cfg.Models,
	}, nil, nil
}
