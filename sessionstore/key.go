package sessionstore

import (
	"encoding/binary"
	"math"

	"github.com/entail-fleet/entail/session"
)

// storeFormat is the layout that this build reads and writes; doc.go has it.
const storeFormat = 2

// The first byte of each key says what the rest is.
const (
	spaceFormat    = 'F'
	spaceWatermark = 'W'
	spaceJournal   = 'J'
	spaceRow       = 'S'
	spaceEvent     = 'E'
	spaceRecord    = 'R'
	spaceMessage   = 'M'
	spacePlanted   = 'N'
	spaceAlarm     = 'A'
	spaceStray     = 'X'
	spaceRunnable  = 'Q'
	spaceSlots     = 'C'
	spaceAsking    = 'G'
	spaceAll       = 'L'
	spaceTree      = 'T'
	spaceParent    = 'P'
)

func formatKey() []byte { return []byte{spaceFormat} }

func watermarkKey(partition int) []byte { return inPartition(spaceWatermark, partition) }

func journalKey(partition int, from uint64) []byte {
	return binary.BigEndian.AppendUint64(inPartition(spaceJournal, partition), from)
}

func rowKey(id session.ID) []byte { return append([]byte{spaceRow}, id...) }

func eventKey(id session.ID, seq session.Seq) []byte {
	return binary.BigEndian.AppendUint64(ofSession(spaceEvent, id), uint64(seq))
}

func recordKey(id session.ID, streamSeq uint64) []byte {
	return binary.BigEndian.AppendUint64(ofSession(spaceRecord, id), streamSeq)
}

func messageKey(id session.ID, message string) []byte {
	return append(ofSession(spaceMessage, id), message...)
}

func plantedKey(id session.ID) []byte { return append([]byte{spacePlanted}, id...) }

func alarmKey(id session.ID, streamSeq uint64) []byte {
	return binary.BigEndian.AppendUint64(ofSession(spaceAlarm, id), streamSeq)
}

func strayKey(partition int, streamSeq uint64) []byte {
	return binary.BigEndian.AppendUint64(inPartition(spaceStray, partition), streamSeq)
}

func runnableKey(partition int, id session.ID) []byte {
	return append(inPartition(spaceRunnable, partition), id...)
}

func slotsKey(partition int, id session.ID) []byte {
	return append(inPartition(spaceSlots, partition), id...)
}

func askingKey(partition int, id session.ID) []byte {
	return append(inPartition(spaceAsking, partition), id...)
}

func allKey(createdAt int64, id session.ID) []byte {
	return dated([]byte{spaceAll}, createdAt, id)
}

func treeKey(root session.ID, createdAt int64, id session.ID) []byte {
	return dated(ofSession(spaceTree, root), createdAt, id)
}

func parentKey(parent session.ID, createdAt int64, id session.ID) []byte {
	return dated(ofSession(spaceParent, parent), createdAt, id)
}

// ofSession starts a key below a session. The zero byte keeps a root's keys apart
// from those of the sessions whose ids begin with its own.
func ofSession(space byte, id session.ID) []byte {
	k := make([]byte, 0, 1+len(id)+1+8+len(id))
	k = append(k, space)
	k = append(k, id...)
	return append(k, 0)
}

func inPartition(space byte, partition int) []byte {
	return binary.BigEndian.AppendUint16([]byte{space}, uint16(partition)) //nolint:gosec // 0 to 255
}

func dated(k []byte, at int64, id session.ID) []byte {
	k = binary.BigEndian.AppendUint64(k, uint64(at)^(1<<63)) //nolint:gosec // the bits, in sorting order
	return append(k, id...)
}

// datedID is the id at the end of an index key that begins with prefix.
func datedID(key, prefix []byte) session.ID { return session.ID(key[len(prefix)+8:]) }

// after returns the first key behind all keys that begin with prefix.
func after(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < math.MaxUint8 {
			end[i]++
			return end[:i+1]
		}
	}
	return nil
}

// lastUint64 is the number a key ends with.
func lastUint64(key []byte) uint64 { return binary.BigEndian.Uint64(key[len(key)-8:]) }
