"""The live page: one file of HTML, CSS and JavaScript, without anything from elsewhere."""
