package client

// Read is how an answer is read.
func Read(answer []byte, out any) (*Position, error) { return read("test", answer, out) }
