package coordinator

// schemas is the metadata that an endpoint publishes with $SRV.INFO: where the
// JSON schema of its request and reply stands.
func schemas(method string) map[string]string {
	return map[string]string{"schema": "docs/api.md#" + method}
}
