// Package page tests the page of package internal/page in Chromium: its sentences about clusters that work, hang and fail, its roles and names for
// screen readers, and its memory. The tests skip where no Chromium is installed. PAGE_SCREENSHOTS names a folder for pictures.
package page
