"""Models by their name on Hugging Face's hub, or by a folder with their configuration: `hf:Qwen/Qwen3-0.6B`."""
