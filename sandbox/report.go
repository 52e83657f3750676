package sandbox

import (
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// Report says what this host confines calls by. All of it was tried and nothing
// concluded from a version.
type Report struct {
	System string `json:"system"`
	Kernel string `json:"kernel,omitempty"`
	// Landlock is the ABI that the kernel offers, 0 for none.
	Landlock int `json:"landlockAbi"`
	// Launcher says what the launcher is started from.
	Launcher Source `json:"launcher,omitempty"`
	// User is this process's.
	User int `json:"user"`
	// Switches says whether calls can run as another user, and UIDs are the users
	// that trees are given then.
	Switches bool            `json:"switchesUsers"`
	UIDs     policy.UIDRange `json:"uids"`
	// Loopback says whether a call can have a network of its own.
	Loopback bool `json:"loopback"`
	// Uncounted says why the processes of a call are not counted here, if they are not:
	// confinement.limits.processes is not kept then.
	Uncounted string `json:"uncounted,omitempty"`
	// Unfit says why nothing is confined here, if nothing is.
	Unfit string       `json:"unfit,omitempty"`
	Tiers []TierReport `json:"tiers"` // from the strongest
	// Own is what calls get in a workspace that belongs to their tree, Other in one
	// that does not.
	Own   Fence `json:"own"`
	Other Fence `json:"other"`
	// FullAccess is what danger-full-access calls reach of this process.
	FullAccess []FullAccess `json:"fullAccess,omitempty"`
	// More is advice beyond the tiers.
	More []Advice `json:"more,omitempty"`
}

// Source names what a launcher is started from.
type Source string

// The sources of a launcher.
const (
	SealedMemory Source = "sealed-memory" // a file in memory that nobody can change
	NamelessFile Source = "nameless-file" // one of the temp directory that has lost its name
)

// TierReport is what was found of one tier.
type TierReport struct {
	Tier session.Tier `json:"tier"`
	Had  bool         `json:"had"`
	// Why says what went wrong where it is not had.
	Why string `json:"why,omitempty"`
	// Modes are what the confined modes come to under this tier.
	Modes []session.Confinement `json:"modes,omitempty"`
	// Advice is what would give the tier.
	Advice []Advice `json:"advice,omitempty"`
}

// Fence is what confined calls get in a workspace: the tier, which is empty where
// they are refused, and what each mode comes to under the default network.
type Fence struct {
	Tier  session.Tier          `json:"tier,omitempty"`
	Modes []session.Confinement `json:"modes,omitempty"`
}

// FullAccess is what a danger-full-access call reached when it tried.
type FullAccess struct {
	As   policy.FullAccessUser `json:"as"`
	User int                   `json:"user"`
	// Failed says why it could not be tried.
	Failed string `json:"failed,omitempty"`
	// Environ says that the environment of this process was read, and so its memory
	// can be; Signal that this process could be sent one.
	Environ bool `json:"readsWorkerEnvironment"`
	Signal  bool `json:"signalsWorker"`
	// Hidden are the hidden paths that were read, of those that exist.
	Hidden []string `json:"readsHiddenPaths,omitempty"`
}

// Site is what a session of a tree would get in a directory. Nothing was changed to
// find out.
type Site struct {
	Path  string `json:"path"` // without links
	Owner int    `json:"owner"`
	// TreeUser is the tree's, where calls can run as another user.
	TreeUser int `json:"treeUser,omitempty"`
	// Reachable says that the tree's user can come to it, Empty that nothing is in it
	// but a mark.
	Reachable bool `json:"reachable"`
	Empty     bool `json:"empty"`
	// Belongs says that all calls run as the tree's user there, Given that it is
	// given to the tree for that by the first session that opens it.
	Belongs bool `json:"belongs"`
	Given   bool `json:"given"`
	// Refused says why confined calls would be refused.
	Refused string `json:"refused,omitempty"`
	Fence
}

// confinedModes are those that there is a fence for.
func confinedModes() []session.SandboxMode {
	return []session.SandboxMode{session.ReadOnly, session.WorkspaceWrite}
}

// modes says what each mode comes to under a fence.
func (f fence) modes() []session.Confinement {
	var out []session.Confinement
	for _, m := range confinedModes() {
		f.mode, f.network = m, policy.DefaultConfinement().Network.Of(m)
		out = append(out, f.confinement())
	}
	return out
}
