package agent

import (
	"errors"
	"testing"
	"time"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/internal/natstest"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// signs is one worker's pulse on a real broker, and a coordinator's log that sets
// and looks.
type signs struct {
	*pulse
	t        *testing.T
	log      *stream.Log
	revision uint64
}

func newSigns(t *testing.T) *signs {
	t.Helper()
	const lease = time.Second
	s := &signs{t: t}
	b := natstest.Start(t)
	logOf := func(role broker.Role, name string) *stream.Log {
		l, err := stream.New(b.Conn(t, role, name), stream.Config{})
		s.must(err)
		return l
	}
	s.must(logOf(broker.Provisioner, "provisioner").Provision(t.Context(), stream.ProvisionConfig{AckWait: lease}))
	s.log = logOf(broker.Coordinator, "coordinator")
	s.pulse = newPulse(Config{Name: "w1", Incarnation: "i1", Lease: lease, Log: logOf(broker.Worker, "w1")}, newShift(0, nil))
	return s
}

func (s *signs) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// set changes the settings.
func (s *signs) set(value []byte) {
	s.t.Helper()
	var err error
	s.revision, err = s.log.Settings().Update(s.t.Context(), value, s.revision)
	s.must(err)
}

// mode sets the default that calls are decided under.
func (s *signs) mode(m session.SandboxMode) {
	s.t.Helper()
	d := policy.DefaultSettings()
	d.Defaults.Sandbox = m
	value, err := d.Encode()
	s.must(err)
	s.set(value)
}

// listed reports whether whoever changes the settings sees the worker, with the
// lease that bounds what it decides.
func (s *signs) listed() bool {
	s.t.Helper()
	all, err := s.log.Liveness().All(s.t.Context())
	s.must(err)
	return client.ReadAlive(all)["w1"].Lease == policy.Duration(s.lease)
}

// until waits for what comes by itself.
func (s *signs) until(what string, ok func() bool) {
	s.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	never := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-never:
			s.t.Fatalf("never: %s", what)
		}
	}
}

// gone waits until the worker's sign of life has expired.
func (s *signs) gone() {
	s.t.Helper()
	s.until("the sign of life expires", func() bool { return !s.listed() })
}

// A worker is listed before it reads the settings: at its start, and when it was
// not listed for a while. A change that it does not read is one that waits for it
// (SPEC 2.1). What cannot be read as settings shows which comes first.
func TestSPEC2_1_AWorkerIsListedBeforeItReads(t *testing.T) {
	t.Parallel()
	s := newSigns(t)
	s.set([]byte("no settings"))
	if err := s.renew(t.Context()); err == nil || !s.listed() {
		t.Errorf("at its start it is listed: %t, with %v; want it listed and the settings refused", s.listed(), err)
	}
	s.mode(session.ReadOnly)
	s.must(s.renew(t.Context()))
	s.gone()
	s.set([]byte("no settings"))
	if err := s.renew(t.Context()); err == nil || !s.listed() {
		t.Errorf("after a silence it is listed: %t, with %v; want it listed and the settings refused", s.listed(), err)
	}
}

// A renewal that takes as long as the lease leaves a gap in which the worker is not
// listed. Whoever changed the settings in the gap has waited for nobody, so what the
// worker read before is not believed: it decides nothing until it has read anew
// (SPEC 2.1). A decision that takes that long is what holds the renewal up here.
func TestSPEC2_1_ASlowRenewalConfirmsNothing(t *testing.T) {
	t.Parallel()
	s := newSigns(t)
	s.mode(session.WorkspaceWrite)
	s.must(s.renew(t.Context()))
	renewed := make(chan error, 1)
	s.must(s.decided(func(policy.Deployment) error {
		s.mode(session.DangerFullAccess)
		go func() { renewed <- s.renew(t.Context()) }()
		s.until("the renewal has read and waits for the decision", func() bool {
			free := s.deciding.TryRLock()
			if free {
				s.deciding.RUnlock()
			}
			return !free
		})
		s.gone()
		s.mode(session.ReadOnly) // nobody is there to be waited for
		return nil
	}))
	if err := <-renewed; !errors.Is(err, errUnconfirmed) {
		t.Errorf("the renewal: %v, want %v", err, errUnconfirmed)
	}
	err := s.decided(func(d policy.Deployment) error {
		t.Errorf("a call is decided under %s, set before the gap", d.Defaults.Sandbox)
		return nil
	})
	if !errors.Is(err, errUnconfirmed) {
		t.Errorf("a decision after the gap: %v, want %v", err, errUnconfirmed)
	}
	s.must(s.renew(t.Context()))
	s.must(s.decided(func(d policy.Deployment) error {
		if d.Defaults.Sandbox != session.ReadOnly {
			t.Errorf("after another renewal calls are decided under %s, want %s", d.Defaults.Sandbox, session.ReadOnly)
		}
		return nil
	}))
}
