package lock

import "syscall"

// ownSession is nothing here; who would need it is not tried on this system.
var ownSession *syscall.SysProcAttr
