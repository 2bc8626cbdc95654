package memory

import (
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// cgroupLimit is what the cgroups of the process may have in bytes, version 2 or 1; math.MaxInt64: there is no limit. root is the
// root of the file system.
func cgroupLimit(root string) int64 {
	limit := int64(math.MaxInt64)
	text, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return limit
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		const fields = 3
		if len(parts) != fields {
			continue
		}
		switch controllers, of := parts[1], parts[2]; {
		case controllers == "": // version 2
			limit = min(limit, lowest(filepath.Join(root, "sys/fs/cgroup"), of, "memory.max"))
		case controllers == "memory":
			limit = min(limit, lowest(filepath.Join(root, "sys/fs/cgroup/memory"), of, "memory.limit_in_bytes"))
		}
	}
	return limit
}

// lowest is the lowest limit of a cgroup and of those that it lies in. In a container the path may be that of the host, and
// only its root is to be seen.
func lowest(mount, of, file string) int64 {
	limit := int64(math.MaxInt64)
	for of = path.Clean("/" + of); ; of = path.Dir(of) {
		if text, err := os.ReadFile(filepath.Join(mount, of, file)); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 { // not "max"
				limit = min(limit, n)
			}
		}
		if of == "/" {
			return limit
		}
	}
}
