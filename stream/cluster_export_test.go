package stream

import "time"

// Budget is how long an append whose outcome is unknown is resent.
func (l *Log) Budget() time.Duration { return l.cfg.Budget }
