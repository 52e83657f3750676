// Package broker runs the embedded nats-server and decides who may say what on it.
//
// It makes the keys, renders the server's access configuration, starts the
// server for one machine, hands credentials to other processes, and checks a
// server that somebody else runs. It knows subjects only as permissions: what
// is published on them is package stream's business.
//
// # Roles
//
// Every connection is one [Identity]: a [Role], a name and a key of its own.
// There is no anonymous access and no password.
//
//	provisioner  creates and updates streams, consumers and buckets
//	coordinator  publishes every class of record, owns the settings
//	worker       publishes turn records of its partitions and its own liveness
//	reader       reads logs
//	client       asks the coordinator, and nothing else
//
// [Permissions] holds the exact lists. They deny by default.
//
// # Why every identity has an account of its own
//
// NATS checks the subject of a message against the publisher's permissions,
// but never its reply subject. Inside one account that is enough to write
// anywhere: a worker asks JetStream for a message it wrote itself and names a
// policy subject as the place for the reply; the server stores its answer
// there. So permissions alone do not keep SPEC 3. Here JetStream, the logs and
// the coordinators live in one account, each other identity in its own, and
// what an identity may publish is a service import. Replies cross the border
// only under subjects that the server invents, so no reply can land in a log,
// in a bucket or in another identity's requests.
//
// The same trick works with the delivery subject of a consumer, which stands
// in the body of a request, where no import looks. So only coordinators and
// the provisioner, which are trusted with the logs, may create consumers;
// workers and readers read with direct gets.
//
// # Guarantees
//
//   - A worker's key cannot publish a policy, inbox, genesis or seed record,
//     another worker's liveness key or requests, or a setting.
//   - Only the holder of an identity reads its inbox.
//   - A worker's requests reach the coordinators under its own name only.
//   - A key is never shown by fmt, slog or encoding/json: see [Secret].
//   - One process at a time uses a data directory.
//
// # Not promised
//
// A worker's key can drive any session of its partitions, acknowledge hints
// that other workers hold, and publish void records. Headers are out of the
// broker's sight: streams that a worker writes to must have rollups, message
// TTLs and schedules off. The provisioner's and the coordinators' keys are
// trusted with everything. Traffic is not encrypted: the embedded server
// listens on loopback only, a fleet adds TLS to its configuration.
//
// # Example
//
//	s, err := broker.Start(ctx, broker.Config{Dir: dir}, ids)
//	...
//	defer s.Close()
//	creds, ok := s.Credentials(broker.Worker, "w1")
//	...
//	nc, err := nats.Connect(creds.URL, creds.Options()...)
package broker
