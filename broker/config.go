package broker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats-server/v2/server"
)

// logAccount is the account of JetStream, the logs and the coordinators.
const logAccount = "ENTAIL"

// The types below are the part of nats-server's configuration that says who may
// do what, as JSON, which its configuration language includes.
type (
	accountsConf struct {
		Accounts map[string]*accountConf `json:"accounts"`
	}
	accountConf struct {
		JetStream bool         `json:"jetstream,omitempty"`
		Users     []userConf   `json:"users"`
		Exports   []exportConf `json:"exports,omitempty"`
		Imports   []importConf `json:"imports,omitempty"`
	}
	userConf struct {
		Nkey        string              `json:"nkey"`
		Permissions *server.Permissions `json:"permissions"`
	}
	exportConf struct {
		Service   string   `json:"service,omitempty"`
		Stream    string   `json:"stream,omitempty"`
		Accounts  []string `json:"accounts"`
		Response  string   `json:"response_type,omitempty"`
		Threshold string   `json:"response_threshold,omitempty"`
	}
	importConf struct {
		Service *sourceConf `json:"service,omitempty"`
		Stream  *sourceConf `json:"stream,omitempty"`
	}
	sourceConf struct {
		Account string `json:"account"`
		Subject string `json:"subject"`
	}
)

// ServerConfig renders the accounts, keys and permissions of ids for
// nats-server, as a file for its include directive. It holds public keys only.
// The embedded server runs on the same text.
func ServerConfig(ids []Identity, partitions int) ([]byte, error) {
	if partitions < 1 {
		return nil, fmt.Errorf("broker configuration for %d partitions: at least 1 is needed", partitions)
	}
	conf := accountsConf{Accounts: map[string]*accountConf{logAccount: {JetStream: true}}}
	seen := map[string]bool{}
	for _, id := range ids {
		if err := validateName(id.Role, id.Name); err != nil {
			return nil, err
		}
		key, err := id.PublicKey()
		if err != nil {
			return nil, err
		}
		name := inboxPrefix(id.Role, id.Name)
		if seen[key] || seen[name] {
			return nil, fmt.Errorf("broker configuration: %s %q or its key is listed twice", id.Role, id.Name)
		}
		seen[key], seen[name] = true, true
		conf.add(id, key, partitions)
	}
	return conf.encode()
}

// add gives an identity its user and, unless it lives with the logs, its
// account and the borders it may cross.
func (c accountsConf) add(id Identity, key string, partitions int) {
	name := id.account()
	account := c.Accounts[name]
	if account == nil {
		account = &accountConf{}
		c.Accounts[name] = account
	}
	account.Users = append(account.Users, userConf{key, Permissions(id.Role, id.Name, partitions)})
	if name == logAccount {
		return
	}
	logs := c.Accounts[logAccount]
	g := grantOf(id.Role, id.Name, partitions)
	for _, s := range g.services {
		logs.export(newServiceExport(s), name)
		account.Imports = append(account.Imports, importConf{Service: &sourceConf{logAccount, s.subject}})
	}
	for _, l := range g.listens {
		logs.export(exportConf{Stream: l}, name)
		account.Imports = append(account.Imports, importConf{Stream: &sourceConf{logAccount, l}})
	}
}

// export opens e to one more account.
func (a *accountConf) export(e exportConf, account string) {
	i := slices.IndexFunc(a.Exports, func(o exportConf) bool {
		return o.Service == e.Service && o.Stream == e.Stream
	})
	if i < 0 {
		i = len(a.Exports)
		a.Exports = append(a.Exports, e)
	}
	a.Exports[i].Accounts = append(a.Exports[i].Accounts, account)
}

func newServiceExport(s service) exportConf {
	e := exportConf{Service: s.subject}
	if s.streamed {
		e.Response = "stream"
	}
	if s.threshold > 0 {
		e.Threshold = s.threshold.String()
	}
	return e
}

// encode leaves > as it is: nats-server's parser knows no \u escapes.
func (c accountsConf) encode() ([]byte, error) {
	if len(c.Accounts[logAccount].Users) == 0 {
		return nil, errors.New("broker configuration: no coordinator is listed")
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(c); err != nil {
		return nil, fmt.Errorf("encode broker configuration: %w", err)
	}
	return out.Bytes(), nil
}
