"""Office formats: Word, Excel, PowerPoint, OpenDocument and Rich Text."""
