"""Charts: colours, shapes and layouts that figures share, and charts as files."""
