package stream

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// deviation is a setting and why it must be what it must be.
type deviation struct {
	setting    string
	have, want any
	differs    bool
	why        string
}

// compare holds a stream's settings to what they must be. The first kind of
// deviation can be updated away; a few settings are for ever.
func compare(want, have jetstream.StreamConfig) error {
	var errs []error
	for _, d := range slices.Concat(storage(want, have), limits(want, have), doors(want, have)) {
		if d.differs {
			errs = append(errs, fmt.Errorf("stream %s has %s %v, it must be %v: %s; update the stream with `nats stream edit`, or recreate it and restore from a mirror: %w",
				want.Name, d.setting, d.have, d.want, d.why, ErrSetting))
		}
	}
	return errors.Join(errs...)
}

func is[T comparable](setting string, have, want T, why string) deviation {
	return deviation{setting: setting, have: have, want: want, differs: have != want, why: why}
}

// storage compares where and how records are kept.
func storage(want, have jetstream.StreamConfig) []deviation {
	return []deviation{
		is("storage", have.Storage, want.Storage, "records must survive a restart"),
		is("replicas", have.Replicas, want.Replicas, "it is the deployment's number of copies"),
		is("retention", have.Retention, want.Retention, "records are kept whoever has read them"),
		is("compression", have.Compression, want.Compression, "reading one session would cost eight times as much"),
		is("persist mode", have.PersistMode, want.PersistMode, "an acknowledged record must be stored"),
		is("no_ack", have.NoAck, want.NoAck, "an append needs its answer"),
		is("sealed", have.Sealed, want.Sealed, "nothing can be appended"),
		is("first_seq", max(have.FirstSeq, 1), max(want.FirstSeq, 1), "sequences start at 1"),
		{
			"subjects", have.Subjects, want.Subjects, !slices.Equal(have.Subjects, want.Subjects),
			"the stream holds its partition and nothing else",
		},
		{
			"mirror or sources", len(have.Sources), 0, have.Mirror != nil || len(have.Sources) > 0,
			"records come from appends alone",
		},
		{
			"subject_transform", have.SubjectTransform, nil, have.SubjectTransform != nil,
			"the class in the subject is what counts",
		},
	}
}

// limits compares what the server may drop or refuse by itself.
func limits(want, have jetstream.StreamConfig) []deviation {
	const moves = "dropping a record moves a tail back and lets a session begin twice"
	return []deviation{
		is("discard", have.Discard, want.Discard, moves),
		is("discard_new_per_subject", have.DiscardNewPerSubject, false, "the subjects of a session are not limited"),
		is("max_age", have.MaxAge, want.MaxAge, moves),
		is("max_msgs", unlimited(have.MaxMsgs), unlimited(want.MaxMsgs), "the room is limited by max_bytes alone"),
		is("max_msgs_per_subject", unlimited(have.MaxMsgsPerSubject), unlimited(want.MaxMsgsPerSubject), moves),
		is("max_msg_size", unlimited(int64(have.MaxMsgSize)), unlimited(int64(want.MaxMsgSize)), "a record has up to 768 KiB and headers"),
		is("max_bytes", have.MaxBytes, want.MaxBytes, "it is the deployment's room; new sessions are refused at 85 % of it"),
		is("duplicate_window", have.Duplicates, want.Duplicates, "a worker could drop a record by a message id; no record of ours has one"),
	}
}

// doors compares what headers and requests may do to records.
func doors(want, have jetstream.StreamConfig) []deviation {
	return []deviation{
		is("allow_direct", have.AllowDirect, want.AllowDirect, "workers read by direct gets"),
		is("mirror_direct", have.MirrorDirect, false, "a stream mirror's answers are no mirror's word"),
		is("deny_delete", have.DenyDelete, want.DenyDelete, "a record that is in a log stays"),
		is("allow_rollup_hdrs", have.AllowRollup, false, "a worker could remove records by a header"),
		is("allow_msg_ttl", have.AllowMsgTTL, false, "a worker could make a tail expire"),
		is("allow_msg_schedules", have.AllowMsgSchedules, false, "a worker could publish on subjects that are not its own"),
		is("allow_msg_counter", have.AllowMsgCounter, false, "records are no counters"),
		is("allow_atomic", have.AllowAtomicPublish, false, "one record is one message; batches can be seen in part"),
		is("allow_batched", have.AllowBatchPublish, false, "one record is one message; batches can be seen in part"),
		{
			"republish", have.RePublish, nil, have.RePublish != nil,
			"records would leave the broker's permissions",
		},
		{
			"consumer limits", have.ConsumerLimits,
			jetstream.StreamConsumerLimits{},
			have.ConsumerLimits != jetstream.StreamConsumerLimits{},
			"hints stay in the queue as long as they must",
		},
	}
}

// unlimited gives the two spellings of no limit one value.
func unlimited(n int64) int64 {
	if n <= 0 {
		return -1
	}
	return n
}
