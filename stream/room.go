package stream

// fullPercent is where new sessions are refused, so that the ends of the others
// still fit.
const fullPercent = 85

// scarcePercent is where it is worth asking each time whether there is room. From
// below it to fullPercent a tenth of the stream is left, which does not fill in a
// second.
const scarcePercent = fullPercent - 10

// Full reports whether the partition has no room for new sessions.
func (i Info) Full() bool { return i.beyond(fullPercent) }

// Scarce reports whether the partition may soon have no room for new sessions.
func (i Info) Scarce() bool { return i.beyond(scarcePercent) }

func (i Info) beyond(percent uint64) bool {
	return i.MaxBytes > 0 && i.Bytes >= i.MaxBytes/100*percent
}
