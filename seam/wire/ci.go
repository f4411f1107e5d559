package wire

// CIVerifyResult is what `asp ci verify --json` prints: the members of a check, and
// what a protected pipeline may go by. Verified is true exactly when both other
// words are.
type CIVerifyResult struct {
	Command      string       `json:"command"`
	Repo         string       `json:"repo"`
	CallSite     CallSite     `json:"callSite"`
	Verified     bool         `json:"verified"`
	GatePassed   bool         `json:"gatePassed"`
	ReceiptValid bool         `json:"receiptValid"`
	Failures     []CIFailure  `json:"failures"`
	Changeset    ChangeSet    `json:"changeset"`
	HostDecision Verdict      `json:"hostDecision"`
	Receipt      AuditReceipt `json:"receipt"`
}

// CIFailure is one reason against. Code is a reason of degraded coverage, or
// receipt-invalid.
type CIFailure struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}
