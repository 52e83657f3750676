package sessionstore

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/entail-fleet/entail/session"
)

// The errors of the store itself. Those of sessions are package session's.
var (
	// ErrClosed is returned by every method of a store that was closed.
	ErrClosed = errors.New("mirror is closed")
	// ErrDamaged is returned when what is read from disk cannot be what was
	// written there.
	ErrDamaged = errors.New("stored data is damaged")
)

// Config says where a store is and whom it tells.
type Config struct {
	// Dir is the store's own directory. It is made when it is missing.
	Dir string
	// FS is the file system of Dir. Default: the disk.
	FS vfs.FS
	// Logger hears of stopped sessions, losses and Pebble's errors. Default:
	// nobody.
	Logger *slog.Logger
	// OnAlarm is called once for each void record, after it was stored, from
	// the goroutine that applies. It may be called again only for a record
	// that a crash took out of the store. Default: none.
	OnAlarm func(session.Alarm)
	// Interval is the time between two syncs, and between two checks of a
	// partition's watermark. Default: 1s.
	Interval time.Duration
	// Patience is how long a stream may say that it holds less than is mirrored
	// before that is a loss. The only server of a stream says so when it is, or within
	// moments never. Of replicated ones a copy may deliver what was agreed on before the
	// leader has applied it, and a leader that was cut off from the others answers for the
	// stream until it notices: see [PatienceFor]. Default: 2s.
	Patience time.Duration
	// Gather is how long records gather behind a batch while nobody waits for
	// them: one batch of some records costs little more than one of one. Default:
	// 2ms.
	Gather time.Duration

	// tune changes Pebble's options. Tests make a small store roll its memtables
	// and compact as a large one does.
	tune func(*pebble.Options)
}

// The patience with streams of one copy and of several.
const (
	singlePatience     = 2 * time.Second
	replicatedPatience = 25 * time.Second
)

// PatienceFor is what [Config.Patience] has to be where streams have so many copies. A
// nats-server that leads looks each 10 s whether it has heard of a quorum in the last 10
// s (lostQuorumCheck and lostQuorumInterval of its raft), and answers for the stream until
// then, with what it had. It can store nothing meanwhile.
func PatienceFor(replicas int) time.Duration {
	if replicas > 1 {
		return replicatedPatience
	}
	return singlePatience
}

func (c Config) withDefaults() Config {
	if c.FS == nil {
		c.FS = vfs.Default
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.OnAlarm == nil {
		c.OnAlarm = func(session.Alarm) {}
	}
	if c.Interval <= 0 {
		c.Interval = time.Second
	}
	if c.Patience <= 0 {
		c.Patience = singlePatience
	}
	if c.Gather <= 0 {
		c.Gather = 2 * time.Millisecond
	}
	return c
}

// Store is the mirror of all partitions of a deployment. Its methods may be
// called from many goroutines.
type Store struct {
	cfg   Config
	db    *pebble.DB
	cache *cache
	trees trees
	lock  *pebble.Lock
	users sync.WaitGroup // those between enter and leave
	done  chan struct{}  // closed by Close, never sent on
	// unmarked says that the store has spaces without a session that no key names:
	// it was one of format 1. Load sets it.
	unmarked bool

	mu         sync.Mutex // guards what follows
	closed     bool
	closeErr   error
	partitions map[int]*partition
}

// Open opens the store in cfg.Dir, or makes one. It refuses a directory that
// another process has open, and a store that a newer build wrote.
func Open(cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.FS.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open mirror: make its directory: %w", err)
	}
	lock, err := pebble.LockDirectory(cfg.Dir, cfg.FS)
	if err != nil {
		return nil, lockError(cfg.Dir, err)
	}
	db, err := pebble.Open(cfg.Dir, options(cfg, lock))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open mirror %s: %w", cfg.Dir, openError(err)), lock.Close())
	}
	s := &Store{
		cfg: cfg, db: db, cache: newCache(), lock: lock,
		done: make(chan struct{}), partitions: make(map[int]*partition),
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("open mirror %s: %w", cfg.Dir, err), s.Close())
	}
	return s, nil
}

// lockError tells a directory that is in use from one that cannot be written.
func lockError(dir string, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("open mirror %s: not writable: %w; give this user the directory or choose another", dir, err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("open mirror %s: %w", dir, err)
	}
	return fmt.Errorf("open mirror %s: in use by another process: %w; stop that one or choose another directory", dir, err)
}

// memTableSize is how many bytes gather in memory before they become a table.
const memTableSize = 16 << 20

// cacheSize is how many bytes Pebble takes for blocks of tables and for memtables
// together, of which there are two at most: it takes memtables off its cache, and one
// that is smaller keeps nothing.
const cacheSize = 16<<20 + 2*memTableSize

func options(cfg Config, lock *pebble.Lock) *pebble.Options {
	o := &pebble.Options{
		FS:                 cfg.FS,
		Lock:               lock,
		Logger:             pebbleLog{cfg.Logger},
		EventListener:      &pebble.EventListener{DataCorruption: corruption(cfg.Logger)},
		FormatMajorVersion: pebble.FormatTableFormatV6,
		MemTableSize:       memTableSize,
		CacheSize:          cacheSize,
		// Compacting half as often costs a reader some tables more to ask.
		L0CompactionThreshold: 8,
		L0StopWritesThreshold: 24,
	}
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionBalanced })
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	if cfg.tune != nil {
		cfg.tune(o)
	}
	return o
}

// corruption tells of a damaged file. By default Pebble stops the process then;
// here whoever reads the file gets the error, and the other sessions go on.
func corruption(log *slog.Logger) func(pebble.DataCorruptionInfo) {
	return func(info pebble.DataCorruptionInfo) {
		log.Error("mirror has a damaged file", slog.String("path", info.Path), slog.Any("error", info.Details))
	}
}

// load reads how far each partition is mirrored and refuses a store that cannot
// hold all up to there.
func (s *Store) load() error {
	format, err := s.checkFormat()
	if err == nil {
		err = s.loadWatermarks()
	}
	if err == nil && format < storeFormat {
		err = s.convert()
	}
	if err == nil {
		s.unmarked, err = has(s.db, plantedKey(""))
	}
	if err != nil {
		return err
	}
	return s.loadJournals()
}

// checkFormat marks a new store with the layout's version and refuses a newer
// one. It returns the version that the store has.
func (s *Store) checkFormat() (int, error) {
	value, closer, err := s.db.Get(formatKey())
	if errors.Is(err, pebble.ErrNotFound) {
		if err := s.refuseForeign(); err != nil {
			return 0, err
		}
		b := s.db.NewBatch()
		defer b.Close()
		return storeFormat, errors.Join(setFormat(b), b.Commit(pebble.Sync))
	}
	if err != nil {
		return 0, readError(err)
	}
	text := string(value)
	if err := closer.Close(); err != nil {
		return 0, err
	}
	have, err := strconv.Atoi(text)
	if err == nil && strconv.Itoa(have) != text {
		err = errors.New("it is written otherwise")
	}
	if err != nil {
		return 0, damaged("format", text, err)
	}
	if have > storeFormat {
		return 0, fmt.Errorf("%w: it has format %d, this build reads up to %d: use a newer build or another directory",
			session.ErrFormat, have, storeFormat)
	}
	return have, nil
}

func setFormat(b *pebble.Batch) error {
	return b.Set(formatKey(), []byte(strconv.Itoa(storeFormat)), nil)
}

// refuseForeign refuses a store that holds something but no format.
func (s *Store) refuseForeign() error {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return readError(err)
	}
	foreign := it.First()
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return readError(err)
	}
	if foreign {
		return damaged("format", "key", errors.New("it is missing"))
	}
	return nil
}

// Close ends the store. It waits for calls in progress, so it must not be called
// from a function that one of them calls back.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		defer s.mu.Unlock()
		return s.closeErr
	}
	s.closed = true
	close(s.done)
	s.mu.Unlock()

	s.users.Wait()
	err := errors.Join(s.db.Close(), s.lock.Close())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeErr = err
	return err
}

// enter holds the store open until leave. Pebble panics when it is used after it
// was closed.
func (s *Store) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.users.Add(1)
	return nil
}

func (s *Store) leave() { s.users.Done() }

// sync makes durable what was applied up to now.
func (s *Store) sync() error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	if err := s.db.LogData(nil, pebble.Sync); err != nil {
		return fmt.Errorf("sync mirror: %w", err)
	}
	return nil
}

// openError translates what Pebble says of a directory that it cannot open. The
// directory is there and locked, so unless the system refuses something, one of
// the files is missing or is not what was written.
func openError(err error) error {
	if _, system := errors.AsType[syscall.Errno](err); system && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return unreadable(err)
}

// readError translates Pebble's word for damage.
func readError(err error) error {
	if err != nil && pebble.IsCorruptionError(err) {
		return unreadable(err)
	}
	return err
}

func unreadable(err error) error {
	return fmt.Errorf("%w: %w; move the directory away and start again to rebuild it from the stream", ErrDamaged, err)
}

// pebbleLog gives Pebble's errors to the store's logger and leaves its chatter
// out.
type pebbleLog struct{ log *slog.Logger }

// Infof implements pebble.Logger.
func (pebbleLog) Infof(string, ...any) {}

// Errorf implements pebble.Logger.
func (l pebbleLog) Errorf(format string, args ...any) {
	l.log.Error("pebble", slog.String("message", fmt.Sprintf(format, args...)))
}

// Fatalf implements pebble.Logger. Pebble calls it when it cannot write its log
// any more and relies on it not to return: a mirror that went on would answer
// from what it could not keep.
func (l pebbleLog) Fatalf(format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	l.log.Error("pebble stops the process", slog.String("message", message))
	panic("mirror cannot be written: " + message)
}
