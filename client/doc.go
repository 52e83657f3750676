// Package client is the Go client of the coordinator, and the home of what
// travels between the two: requests, replies and error codes, all JSON.
//
// The coordinator is a NATS micro service, so anything that speaks NATS can use
// it: publish a request to entail.api.v1.<method> with a bearer token in the
// Authorization header and read one reply. Workers speak the same way on
// entail.worker.<name>.<method>, where the broker, not a token, says who asks.
//
// Every request carries the version of this API and may carry the position of an
// earlier reply: the answer is then at least that new. Every request that
// creates something carries an id that the caller made, so that sending it again
// is the same request (SPEC 1.10). A switch, a setting and a release have no id: a
// caller that got no answer looks before it sends one again.
package client
