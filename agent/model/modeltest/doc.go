// Package modeltest is a local server that speaks the published
// chat-completions protocol, for tests of whatever talks to a model.
//
// A [Step] answers one request, well or badly: [Reply] streams text and calls as
// the protocol says, the others are what endpoints do on worse days. A server
// takes its steps in order, or chooses them by the conversation, so that a
// root and its children can be driven by one server whatever their order.
//
// The server is strict about what it is sent. A request whose history is not
// consistent (see [Request.Check]) is answered 400 as a hosted endpoint would,
// and so is a wrong key with 401 where [Handler.Key] is set.
//
//	srv := modeltest.NewServer(t,
//		modeltest.Reply{Calls: []modeltest.Call{{ID: "call_0", Name: "read", Arguments: `{"path":"a"}`}}}.Step(),
//		modeltest.Reply{Text: []string{"it says ", "hello"}}.Step(),
//	)
//	// run against srv.URL, then look at srv.Requests()
package modeltest
