//go:build !mutate_relay

package coordinator

// mayRelay is the rule that only a direct parent sends to a child and only an ancestor
// stops one (SPEC 7.6). A build with the tag mutate_relay takes it out, so that tests can
// show that they notice.
const mayRelay = true
