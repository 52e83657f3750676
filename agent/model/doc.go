// Package model asks a language model for the next step of a session.
//
// There are two clients. [NewOpenAI] speaks the chat-completions protocol with
// any endpoint that offers it; [Script.Client] answers from a file, so that
// tests and the demo need no endpoint and no key.
//
// # What it guarantees
//
//   - A step is whole or it is an error. A response that was cut, that stalled
//     or that never said it was finished is never returned as an answer.
//   - The key goes to the configured endpoint in one header and nowhere else:
//     not to the target of a redirect, not into an error, not into a printed
//     configuration.
//   - The process environment is not read. A caller that wants names like
//     OPENAI_API_KEY resolves them with [Resolve].
//   - What the model said is passed on as it was said. Unknown tools, arguments
//     that are not JSON and ids that are missing or repeated are data for the
//     caller, which has ids of its own.
//
// # What it does not do
//
// It does not check that a tool exists, does not run calls and does not pair
// calls with results: a request's history is the caller's.
//
// # Order of events
//
// Within one Step: the request is sent, text arrives through onText, and the
// response is returned. When an attempt breaks in a way that may pass
// ([KindTransient]), OnRetry is called, a pause follows, and the whole attempt
// is made again, so its text streams again from the first word.
package model
