package broker

import (
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	settingsBucket = "ENTAIL_SETTINGS"
	livenessBucket = "ENTAIL_LIVE"
	settingsStream = "KV_" + settingsBucket
	livenessStream = "KV_" + livenessBucket
	workConsumer   = "work"
)

// getThreshold is how long the server keeps the reply path of a direct get open.
// A batch of answers has no end the server could see, so every get holds its
// path that long.
const getThreshold = 10 * time.Second

// replies are the subjects under which the server carries answers from the
// account of the logs to another. A coordinator answers requests there and
// nowhere else, so never on a subject that the asking side made up.
const replies = "_R_.>"

// service is a subject that an identity may publish on.
type service struct {
	subject string
	// streamed marks a request that has more than one answer.
	streamed bool
	// threshold is how long answers may come in; zero is the server's default.
	threshold time.Duration
}

// grant is everything that one identity may do.
type grant struct {
	services []service
	// listens are subjects, beside its own inbox, that it may subscribe to.
	listens []string
}

// Permissions returns the subjects that an identity of a deployment with that
// many partitions may publish on and subscribe to. Everything else is denied.
func Permissions(role Role, name string, partitions int) *server.Permissions {
	g := grantOf(role, name, partitions)
	p := &server.Permissions{
		Publish:   &server.SubjectPermission{},
		Subscribe: &server.SubjectPermission{Allow: []string{inboxPrefix(role, name) + ".>"}},
	}
	for _, s := range g.services {
		p.Publish.Allow = append(p.Publish.Allow, s.subject)
	}
	p.Subscribe.Allow = append(p.Subscribe.Allow, g.listens...)
	return p
}

func grantOf(role Role, name string, partitions int) grant {
	switch role {
	case Provisioner:
		return grant{services: provisionerServices(partitions)}
	case Client:
		return grant{services: single("entail.api.v1.>")}
	case Coordinator:
		return coordinatorGrant(partitions)
	case Worker:
		return workerGrant(name, partitions)
	case Reader:
		return grant{services: readerServices(partitions)}
	}
	return grant{}
}

// provisionerServices neither delete nor purge: nothing of ours does, and an
// operator who must has the server's own tools.
func provisionerServices(partitions int) []service {
	out := single("$JS.API.INFO")
	for _, s := range allStreams(partitions) {
		out = append(out, single(
			"$JS.API.STREAM.CREATE."+s,
			"$JS.API.STREAM.UPDATE."+s,
			"$JS.API.STREAM.INFO."+s,
			"$JS.API.CONSUMER.CREATE."+s+".>",
			"$JS.API.CONSUMER.INFO."+s+".*",
			"$JS.API.CONSUMER.DELETE."+s+".*",
		)...)
	}
	return out
}

func coordinatorGrant(partitions int) grant {
	out := single("entail.log.>", "$KV."+settingsBucket+".>", "entail.poke.*", replies, "$JS.API.INFO")
	for _, s := range allStreams(partitions) {
		out = append(out, readServices(s)...)
		out = append(out, single(
			"$JS.API.CONSUMER.CREATE."+s+".>",
			"$JS.API.CONSUMER.INFO."+s+".*",
			"$JS.API.CONSUMER.DELETE."+s+".*",
			"$JS.API.CONSUMER.MSG.NEXT."+s+".*",
			// A watcher of a bucket answers flow control.
			"$JS.FC."+s+".>",
		)...)
	}
	return grant{
		services: out,
		listens:  []string{"entail.api.v1.>", "entail.worker.>", "$SRV.>"},
	}
}

func workerGrant(name string, partitions int) grant {
	out := single("$KV."+livenessBucket+"."+name, "entail.worker."+name+".>", "$JS.API.INFO")
	out = append(out, readServices(settingsStream)...)
	out = append(out, readServices(livenessStream)...)
	for p := range partitions {
		s := logStream(p)
		out = append(out, readServices(s)...)
		out = append(out, single(
			fmt.Sprintf("entail.log.%d.*.*.turn", p),
			"$JS.API.CONSUMER.INFO."+s+"."+workConsumer,
			"$JS.ACK."+s+"."+workConsumer+".>",
		)...)
		out = append(out, service{
			subject: "$JS.API.CONSUMER.MSG.NEXT." + s + "." + workConsumer, streamed: true,
		})
	}
	return grant{services: out, listens: []string{"entail.poke." + name}}
}

func readerServices(partitions int) []service {
	out := single("$JS.API.INFO")
	for p := range partitions {
		out = append(out, readServices(logStream(p))...)
	}
	return out
}

// readServices read one stream without a consumer.
func readServices(stream string) []service {
	return []service{
		{subject: "$JS.API.STREAM.INFO." + stream},
		{subject: "$JS.API.STREAM.MSG.GET." + stream},
		{subject: "$JS.API.DIRECT.GET." + stream, streamed: true, threshold: getThreshold},
		{subject: "$JS.API.DIRECT.GET." + stream + ".>"},
	}
}

func single(subjects ...string) []service {
	out := make([]service, len(subjects))
	for i, s := range subjects {
		out[i].subject = s
	}
	return out
}

func allStreams(partitions int) []string {
	out := make([]string, partitions)
	for p := range partitions {
		out[p] = logStream(p)
	}
	return slices.Concat(out, []string{settingsStream, livenessStream})
}

func logStream(partition int) string { return fmt.Sprintf("ENTAIL_LOG_%d", partition) }

// inboxPrefix is unambiguous: no role contains an underscore.
func inboxPrefix(role Role, name string) string {
	return fmt.Sprintf("_INBOX_%s_%s", role, name)
}
