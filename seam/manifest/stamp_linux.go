package manifest

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// settleTime is how long a file has to have been left alone before its time stamps
// tell one state of it from the next, whatever clock its file system keeps.
const settleTime = 2 * time.Second

// stampOf names the state of a file by what the kernel says of it. settled is false
// where the next change might leave the same name.
func stampOf(fi os.FileInfo, now time.Time) (stamp string, settled bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return "", false
	}
	last := max(st.Mtim.Nano(), st.Ctim.Nano())
	return fmt.Sprintf("%d %d %d %d %d %o", st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano(), st.Mode), now.UnixNano()-last > int64(settleTime)
}
