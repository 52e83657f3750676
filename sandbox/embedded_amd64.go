//go:build linux

package sandbox

import _ "embed" // of the launcher

//go:embed launcher_linux_amd64.bin
var launcherBinary string
