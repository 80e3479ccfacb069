"""The texts of the kernel templates (*.wgsl), read by meganeura.schedule.shader_text."""
