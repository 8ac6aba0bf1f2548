"""What the book's pages need: claims and verdicts, stored rows, where a number was measured, figure style."""
