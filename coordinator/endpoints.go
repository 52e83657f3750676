package coordinator

import (
	"context"
	"fmt"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// endpoints lists every method of the service. It is the one place that says
// which role a method needs.
func (c *Coordinator) endpoints() []endpoint {
	return []endpoint{
		api(client.MethodInfo, Viewer, headAlone, c.info),
		api(client.MethodSchemas, Viewer, headAlone, c.schemas),
		api(client.MethodCreate, Operator, func(r *client.CreateRequest) client.Head { return r.Head }, c.create),
		api(client.MethodFork, Operator, func(r *client.ForkRequest) client.Head { return r.Head }, c.fork),
		api(client.MethodList, Viewer, func(r *client.ListRequest) client.Head { return r.Head }, c.list),
		api(client.MethodShow, Viewer, sessionHead, c.show),
		api(client.MethodTree, Viewer, sessionHead, c.tree),
		waits(api(client.MethodEvents, Viewer, func(r *client.EventsRequest) client.Head { return r.Head }, c.events)),
		api(client.MethodRecords, Viewer, func(r *client.RecordsRequest) client.Head { return r.Head }, c.records),
		api(client.MethodSend, Operator, func(r *client.SendRequest) client.Head { return r.Head }, c.send),
		api(client.MethodInterrupt, Operator, stopHead, c.interrupt),
		api(client.MethodCancel, Operator, stopHead, c.cancel),
		api(client.MethodApprovals, Viewer, func(r *client.ApprovalsRequest) client.Head { return r.Head }, c.approvals),
		api(client.MethodApproval, Viewer, func(r *client.ApprovalRequest) client.Head { return r.Head }, c.approval),
		api(client.MethodAnswer, Operator, func(r *client.AnswerRequest) client.Head { return r.Head }, c.answerQuestion),
		api(client.MethodRelease, Admin, func(r *client.ReleaseRequest) client.Head { return r.Head }, c.release),
		api(client.MethodPolicyGet, Viewer, sessionHead, c.policyGet),
		api(client.MethodPolicySet, Operator, func(r *client.PolicySetRequest) client.Head { return r.Head }, c.policySet),
		api(client.MethodPolicyExplain, Viewer, sessionHead, c.policyExplain),
		api(client.MethodCallExplain, Viewer, func(r *client.CallRequest) client.Head { return r.Head }, c.callExplain),
		api(client.MethodCallSettle, Operator, func(r *client.SettleRequest) client.Head { return r.Head }, c.settleCall),
		api(client.MethodConfigGet, Viewer, headAlone, c.configGet),
		api(client.MethodConfigSet, Admin, func(r *client.ConfigSetRequest) client.Head { return r.Head }, c.configSet),
		api(client.MethodConfigHistory, Viewer, headAlone, c.configHistory),
		api(client.MethodWorkerList, Viewer, headAlone, c.workerList),
		api(client.MethodWorkerHistory, Viewer, func(r *client.WorkerRequest) client.Head { return r.Head }, c.workerHistory),
		waits(api(client.MethodWorkerSet, Admin, func(r *client.WorkerSetRequest) client.Head { return r.Head }, c.workerSet)),

		atTail(forWorkers(client.MethodDelegate, func(r *client.DelegateRequest) client.Head { return r.Head }, c.delegate)),
		atTail(forWorkers(client.MethodRelay, func(r *client.RelayRequest) client.Head { return r.Head }, c.relay)),
		forWorkers(client.MethodSettled, func(r *client.SettledRequest) client.Head { return r.Head }, c.settled),
		atTail(forWorkers(client.MethodEmpty, func(r *client.EmptyRequest) client.Head { return r.Head }, c.empty)),
		atTail(forWorkers(client.MethodCold, func(r *client.ColdRequest) client.Head { return r.Head }, c.cold)),
	}
}

func headAlone(r *client.Head) client.Head             { return *r }
func sessionHead(r *client.SessionRequest) client.Head { return r.Head }
func stopHead(r *client.StopRequest) client.Head       { return r.Head }

// at is the position of a record in its session's partition.
func at(id session.ID, streamSeq uint64) *client.Position {
	return &client.Position{Partition: id.Partition(), Sequence: streamSeq}
}

// wayToSessions is the way out of an id that is no session's.
const wayToSessions = "`entail session ls` lists them"

// known parses an id that a client sent.
func (c *Coordinator) known(id session.ID) error {
	if _, err := session.ParseID(string(id)); err != nil {
		return err
	}
	if id.Partition() >= c.cfg.Partitions {
		return &client.Error{Code: client.CodeNotFound, Message: fmt.Sprintf("session %s: %v: its partition is not one of this deployment; %s", id, session.ErrNotFound, wayToSessions), Session: id}
	}
	return nil
}

func (c *Coordinator) info(context.Context, caller, client.Head) (*client.InfoReply, *client.Position, error) {
	d := c.settings()
	return &client.InfoReply{
		Version: c.cfg.Version, Partitions: c.cfg.Partitions, Format: session.FormatVersion,
		Revision: d.Revision, Settings: d.Settings, Durability: c.cfg.Durability, Models: c.cfg.Models,
	}, nil, nil
}
