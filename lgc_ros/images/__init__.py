"""Images: frames with stamp, camera and pose, and decoding of image messages and files.

`frame.Frame` and `frame.read_image` are what the rest of the package uses; `encoding` decodes raw
and compressed image messages, `header` reads image sizes before decoding, `exif` focal lengths,
`stamps` the stamps of messages, and `resize` limits the size of an image and its camera.
"""
