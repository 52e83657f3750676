package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The names of a deployment's buckets and of its work consumers.
const (
	settingsBucket = "ENTAIL_SETTINGS"
	liveBucket     = "ENTAIL_LIVE"
	workConsumer   = "work"
	// settingsKept is how many revisions of a setting are kept, the most that
	// JetStream's buckets allow.
	settingsKept = 64
	// leastWindow is the shortest time the server remembers message ids for. No
	// record has one.
	leastWindow = 100 * time.Millisecond
)

// ProvisionConfig says what Provision makes beside the log streams.
type ProvisionConfig struct {
	// AckWait is the lease: how long a hint stays with a worker. Default 30s.
	AckWait time.Duration
	// LiveTTL is how long a liveness value stands. Default AckWait.
	LiveTTL time.Duration
	// SettingsBytes is the room of the settings bucket. Default 64 MiB.
	SettingsBytes int64
	// LiveBytes is the room of the liveness bucket. Default 16 MiB.
	LiveBytes int64
}

func (c ProvisionConfig) withDefaults() ProvisionConfig {
	if c.AckWait == 0 {
		c.AckWait = 30 * time.Second
	}
	if c.LiveTTL == 0 {
		c.LiveTTL = c.AckWait
	}
	if c.SettingsBytes == 0 {
		c.SettingsBytes = 64 << 20
	}
	if c.LiveBytes == 0 {
		c.LiveBytes = 16 << 20
	}
	return c
}

// Provision makes what a deployment needs and is not there: a stream and a work
// consumer per partition, and the two buckets. What is there is checked; its room,
// its replicas and its lease are brought to what is configured. It needs the
// provisioner's rights and may be run again at any time.
func (l *Log) Provision(ctx context.Context, c ProvisionConfig) error {
	c = c.withDefaults()
	for p := range l.cfg.Partitions {
		if err := l.ensure(ctx, l.logConfig(p)); err != nil {
			return err
		}
		if _, err := l.js.CreateOrUpdateConsumer(ctx, StreamName(p), workConfig(p, c.AckWait)); err != nil {
			return fmt.Errorf("create consumer %s of stream %s: %w", workConsumer, StreamName(p), err)
		}
	}
	if err := l.ensure(ctx, l.bucketConfig(settingsBucket, settingsKept, c.SettingsBytes, 0)); err != nil {
		return err
	}
	return l.ensure(ctx, l.bucketConfig(liveBucket, 1, c.LiveBytes, c.LiveTTL))
}

// Check refuses a log stream with a setting that breaks a guarantee. It names
// every such setting, what it has, what it must be, and the way out.
func (l *Log) Check(ctx context.Context) error {
	var errs []error
	for p := range l.cfg.Partitions {
		i, err := l.info(ctx, p)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			err = fmt.Errorf("stream %s does not exist: provision the deployment, or correct its partition count of %d", StreamName(p), l.cfg.Partitions)
		}
		if err == nil {
			err = compare(l.logConfig(p), i.Config)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// ensure creates a stream or checks the one that is there.
func (l *Log) ensure(ctx context.Context, want jetstream.StreamConfig) error {
	s, err := l.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if _, err = l.js.CreateStream(ctx, want); err != nil {
			return fmt.Errorf("create stream %s: %w", want.Name, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask for stream %s: %w", want.Name, err)
	}
	have := s.CachedInfo().Config
	changed := have.MaxBytes != want.MaxBytes || have.Replicas != want.Replicas || have.MaxAge != want.MaxAge && want.MaxAge > 0
	have.MaxBytes, have.Replicas = want.MaxBytes, want.Replicas
	if want.MaxAge > 0 {
		have.MaxAge, have.Duplicates = want.MaxAge, want.Duplicates
	}
	if err := compare(want, have); err != nil || !changed {
		return err
	}
	if _, err := l.js.UpdateStream(ctx, have); err != nil {
		return fmt.Errorf("update stream %s: %w", want.Name, err)
	}
	return nil
}

// logConfig is the configuration of a partition's stream (ARCHITECTURE 2).
func (l *Log) logConfig(p int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: StreamName(p), Subjects: []string{partitionFilter(p)},
		Storage: jetstream.FileStorage, Replicas: l.cfg.Replicas,
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, MaxBytes: l.cfg.MaxBytes,
		MaxMsgs: -1, MaxMsgsPerSubject: -1, MaxMsgSize: -1, MaxConsumers: -1,
		AllowDirect: true, DenyDelete: true, Duplicates: leastWindow, Compression: jetstream.NoCompression,
	}
}

// bucketConfig is the configuration of the stream behind a bucket. A worker
// writes to one of them, so it has rollups off, which could name every key, and
// is not made by the library, which turns them on.
func (l *Log) bucketConfig(name string, history int64, room int64, ttl time.Duration) jetstream.StreamConfig {
	c := jetstream.StreamConfig{
		Name: bucketStream(name), Subjects: []string{bucketKey(name, ">")},
		Storage: jetstream.FileStorage, Replicas: l.cfg.Replicas,
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, MaxBytes: room,
		MaxMsgs: -1, MaxMsgsPerSubject: history, MaxMsgSize: -1, MaxConsumers: -1,
		AllowDirect: true, DenyDelete: true, Duplicates: leastWindow, Compression: jetstream.NoCompression,
		MaxAge: ttl,
	}
	return c
}

// workConfig is the configuration of a partition's work consumer (ARCHITECTURE 4).
func workConfig(p int, lease time.Duration) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: workConsumer, FilterSubjects: workFilters(p),
		DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: lease, MaxDeliver: -1, MaxAckPending: -1,
	}
}

func bucketStream(bucket string) string   { return "KV_" + bucket }
func bucketKey(bucket, key string) string { return "$KV." + bucket + "." + key }
