package sandbox

import (
	"fmt"

	"github.com/entail-fleet/entail/session"
)

// Advice is one thing to do for a stronger fence. docs/deploy.md has the source of
// each under its code.
type Advice struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// facts are what advice depends on.
type facts struct {
	root bool
	abi  int // of Landlock
	// What stands in the way of user namespaces, as the kernel's settings say.
	noUserNamespaces, onlyRootMakes, appArmor bool
}

// The least ABI of Landlock that calls are confined by, see the launcher.
const leastABI = 3

// advise says what would give a tier that was not to be had.
func advise(t session.Tier, f facts) []Advice {
	switch t {
	case session.TierNamespaces:
		if f.root {
			return []Advice{adviceSysAdmin}
		}
		return append(f.userNamespaces(), adviceRoot)
	case session.TierUID:
		if f.root {
			return []Advice{adviceSwitch, adviceMapped}
		}
		return []Advice{adviceRoot}
	case session.TierLandlock:
		return []Advice{{adviceKernel.Code, fmt.Sprintf(adviceKernel.Text, leastABI, f.abi)}, adviceProfile}
	case session.TierNone:
	}
	return nil
}

// userNamespaces says what would let an ordinary user have them. Where the kernel's
// settings do not stand in the way, the profile of a container does.
func (f facts) userNamespaces() []Advice {
	var out []Advice
	for _, a := range []struct {
		holds  bool
		advice Advice
	}{
		{f.noUserNamespaces, adviceMaxUserNamespaces},
		{f.onlyRootMakes, adviceCloneSetting},
		{f.appArmor, adviceAppArmor},
	} {
		if a.holds {
			out = append(out, a.advice)
		}
	}
	if out == nil {
		out = append(out, adviceUserNamespaces)
	}
	return out
}

// The advice there is.
var (
	adviceSysAdmin = Advice{"cap-sys-admin", "give the worker CAP_SYS_ADMIN, and CAP_NET_ADMIN for network loopback: " +
		"docker run --cap-add SYS_ADMIN --cap-add NET_ADMIN, with --security-opt apparmor=unconfined where AppArmor is on"}
	adviceRoot = Advice{"run-as-root", "run the worker as root, with the capabilities that Docker gives: " +
		"each tree then has a user of its own"}
	adviceSwitch = Advice{"cap-setuid", "give the worker CAP_SETUID, CAP_SETGID, CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_KILL and CAP_SETPCAP, " +
		"which Docker does unless --cap-drop takes them"}
	adviceMapped = Advice{"uids-mapped", "where the worker is root of a user namespace (a rootless engine, userns-remap), " +
		"set confinement.uids to users that are mapped into it: /proc/self/uid_map lists them"}
	adviceMaxUserNamespaces = Advice{"max-user-namespaces", "let users make namespaces: sysctl user.max_user_namespaces=15000, which is 0 here"}
	adviceCloneSetting      = Advice{"unprivileged-userns-clone", "let users make namespaces: sysctl kernel.unprivileged_userns_clone=1, which is 0 here"}
	adviceAppArmor          = Advice{"apparmor-userns", "AppArmor keeps programs without a profile from using user namespaces: give the worker's binary a profile with the rule \"userns,\", " +
		"or set sysctl kernel.apparmor_restrict_unprivileged_userns=0"}
	adviceUserNamespaces = Advice{"seccomp-userns", "let the container make user namespaces and mount: docker run --security-opt seccomp=unconfined " +
		"--security-opt systempaths=unconfined, with --security-opt apparmor=unconfined where AppArmor is on"}
	adviceKernel = Advice{"landlock-kernel", "run Linux 6.2 or newer that is built with CONFIG_SECURITY_LANDLOCK and has landlock in its lsm= list: " +
		"calls are confined from Landlock ABI %d on, and here it is %d"}
	adviceProfile = Advice{"landlock-profile", "in a container, its seccomp profile has to allow landlock_create_ruleset, landlock_add_rule and landlock_restrict_self: " +
		"Docker's default does from 23.0 on"}
	adviceScopes   = Advice{"landlock-scopes", "run Linux 6.12 or newer: from Landlock ABI 6 on, tiers uid and landlock keep calls from signaling processes of the same user"}
	adviceLoopback = Advice{"cap-net-admin", "network loopback takes a network namespace: give the worker CAP_NET_ADMIN beside CAP_SYS_ADMIN, docker run --cap-add NET_ADMIN"}
)
