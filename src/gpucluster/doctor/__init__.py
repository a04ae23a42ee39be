"""What a cluster needs of an account before anything is created: asked, judged, never changed."""
