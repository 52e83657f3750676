package session

// View is a session at one tail: what an append's precondition is evaluated on.
// Link finds the link after an own event; Has reports whether a message id was
// accepted before. Both speak of exactly the log that State folded.
type View struct {
	State State
	Tail  uint64
	Link  func(Seq) (Link, bool)
	Has   func(messageID string) bool
}
