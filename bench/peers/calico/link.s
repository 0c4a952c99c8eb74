// This file has no content: that there is one lets link.go declare functions without a body.
