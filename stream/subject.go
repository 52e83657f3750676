package stream

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/entail-fleet/entail/session"
)

// logPrefix is the first two tokens of every record's subject.
const logPrefix = "entail.log."

// StreamName returns the name of a partition's stream.
func StreamName(p int) string { //nolint:revive // a stream is what JetStream calls so
	return "ENTAIL_LOG_" + strconv.Itoa(p)
}

// Subject returns the subject that a record of address a is published on.
func Subject(a session.Address) string {
	s := space(a.Space()) + "." + string(a.Class)
	if a.Class == session.ClassGenesis {
		s += "." + string(a.Session)
	}
	return s
}

// TailFilter returns the subjects whose last sequence is a session's tail. It is
// the one place that builds the filter of the compare-and-set: on replicated
// streams the check is right only if every writer names this very string, and a
// filter that matches nothing lets everything pass (ARCHITECTURE 2).
func TailFilter(id session.ID) string { return space(id) + ".>" }

// ParseSubject reads what Subject wrote.
func ParseSubject(subject string) (session.Address, error) {
	rest, ok := strings.CutPrefix(subject, logPrefix)
	t := strings.Split(rest, ".")
	if !ok || len(t) < 4 || len(t) > 5 {
		return session.Address{}, fmt.Errorf("subject %q is not a record's", subject)
	}
	owner, err := session.ParseID(t[2])
	if err != nil {
		return session.Address{}, fmt.Errorf("subject %q: %w", subject, err)
	}
	a := session.Address{Session: owner, Class: session.Class(t[3])}
	if !a.Class.Valid() || (a.Class == session.ClassGenesis) != (len(t) == 5) {
		return session.Address{}, fmt.Errorf("subject %q is not a record's", subject)
	}
	if len(t) == 5 {
		if a.Session, err = session.ParseID(t[4]); err != nil {
			return session.Address{}, fmt.Errorf("subject %q: %w", subject, err)
		}
		a.Creator = owner
	}
	if a.Session.Root() != owner.Root() || Subject(a) != subject {
		return session.Address{}, fmt.Errorf("subject %q is not a record's", subject)
	}
	return a, nil
}

// place says where a stored message stands. One that stands in a session's space
// without being a record's gets a class that no record has, so that the
// session's chain judges it. Anything else is in no session's log.
func place(subject string) (session.Address, bool) {
	if a, err := ParseSubject(subject); err == nil {
		return a, true
	}
	t := strings.SplitN(strings.TrimPrefix(subject, logPrefix), ".", 4)
	if len(t) < 4 {
		return session.Address{}, false
	}
	id, err := session.ParseID(t[2])
	if err != nil || !strings.HasPrefix(subject, space(id)+".") {
		return session.Address{}, false
	}
	return session.Address{Session: id, Class: session.Class("?" + t[3])}, true
}

// space is the subject under which a session's records stand.
func space(id session.ID) string {
	return logPrefix + strconv.Itoa(id.Partition()) + "." + string(id.Root()) + "." + string(id)
}

// genesisFilter matches the genesis of a session in whoever's space it stands.
func genesisFilter(id session.ID) string {
	return logPrefix + strconv.Itoa(id.Partition()) + "." + string(id.Root()) + ".*." +
		string(session.ClassGenesis) + "." + string(id)
}

// partitionFilter matches every record of a partition.
func partitionFilter(p int) string { return logPrefix + strconv.Itoa(p) + ".>" }

// workFilters match the records that may give a driver something to do.
func workFilters(p int) []string {
	prefix := logPrefix + strconv.Itoa(p) + ".*.*."
	return []string{prefix + string(session.ClassInbox), prefix + string(session.ClassGenesis) + ".*"}
}
