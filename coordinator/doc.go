// Package coordinator is the service that writes everything a worker may not:
// geneses, policy events and inbox records.
//
// Any number of coordinators may run; each holds a full mirror of the logs and
// nothing else, so that one can be killed at any moment and another answers. What
// they write is decided by compare-and-set on a session's tail alone.
//
// A coordinator
//
//   - authenticates people and programs by bearer token, workers by the subject
//     that only their own broker identity can publish to, and writes who caused
//     each event into it;
//   - answers requests as a NATS micro service (package client has the types);
//   - commits delegations: the worker's decision is made again at the worker's
//     tail, and one record holds it and the child's whole first batch;
//   - tells a parent, exactly once, how each turn of a child ended;
//   - sweeps: a session that is runnable and that nobody drives gets a nudge. The
//     work queue is latency; the sweep is the guarantee (ARCHITECTURE 4).
package coordinator
